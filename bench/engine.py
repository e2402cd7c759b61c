"""What installing an engine costs beside plain `uv pip sync` of the same lock. `make bench NAME=engine`.

Both take turns on one bare host, each with an empty cache, and both write bytecode; the installation also checks what
it made. Then: what the look costs that finds the engine unchanged. The production engine where the disk allows, else
the sandbox's (or the one that ENGINE names).
"""

import os
import shutil
import sys
from collections.abc import Iterator

from bench.kit import timed
from bench.rows import Row
from requirements.lock import pins
from sandbox.engine_choice import FULL, LIGHT
from sandbox.fleet import Sandbox
from sandbox.machine import Host
from sandbox.registries import WHEELS_INSIDE, wheel_folder
from serving.engine import Engine, EngineOnHost
from serving.plan import GROUP_DATA
from tests import engines

ROUNDS, LOOKS = 2, 15
# The goals: an installation against plain uv, and the look at an installed engine.
GOAL_RATIO, GOAL_LOOK_S = 1.2, 0.1
_PLAIN = "/root/plain"
_TIMED = "TIMEFORMAT=%R; time {{ {}; }} >/dev/null"
_LOOK = (
    "python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; from hostkit import integrity; "
    f"assert integrity.changed(Path(sys.argv[2])) == []' {engines.HOSTKIT} "
)


def measure() -> Iterator[Row]:
    """Rows of medians, s. Raises timed.Failed when an installation fails."""
    sandbox = Sandbox()
    engine = _engine(sandbox)
    host = engines.fresh(sandbox, "bench-engine")
    try:
        _prepare(host, engine)
        print(f"bench: {engine.name}, {ROUNDS} rounds", file=sys.stderr, flush=True)
        times = timed.interleaved(ROUNDS, plain=lambda: _plain_s(host, engine), whole=lambda: _install_s(host, engine))
        looks = timed.interleaved(
            LOOKS, start=lambda: _seconds(host, "python3 -c pass"), look=lambda: _seconds(host, _LOOK + engine.folder)
        )
    finally:
        sandbox.down(host.name)
    yield from _rows(engine, times, looks)


def _rows(engine: EngineOnHost, times: dict[str, float], looks: dict[str, float]) -> Iterator[Row]:
    ratio = times["whole"] / times["plain"]
    count = len(pins(engine.engine.lock.decode()))
    yield Row(f"{engine.name}: installed and checked", times["whole"], "s", "uv pip sync", ratio)
    yield Row(f"{engine.name}: uv pip sync, with bytecode", times["plain"], "s", "itself", 1.0)
    yield Row(f"ratio of the two, {engine.name}", ratio, "", f"goal of {GOAL_RATIO}", ratio / GOAL_RATIO)
    beyond = looks["look"] - looks["start"]
    goal = f"goal of {GOAL_LOOK_S} s"
    yield Row(f"no-op check of {count} packages, less python's start", beyond, "s", goal, beyond / GOAL_LOOK_S)


def _engine(sandbox: Sandbox) -> EngineOnHost:
    full = Engine(GROUP_DATA / "engines", FULL)
    free = shutil.disk_usage(sandbox.place.root.parent).free / 1e9
    enough = free > full.data.installed_gb * 1.3 + 2
    name = os.environ.get("ENGINE") or (FULL if enough else LIGHT)
    print(f"bench: {free:.0f} GB free, so the engine is {name}", file=sys.stderr, flush=True)
    return EngineOnHost(Engine(GROUP_DATA / "engines", name), engines.PYTHON)


def _prepare(host: Host, engine: EngineOnHost) -> None:
    """Packages that its checks need, and uv, which is measured in neither."""
    install = f"DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends {' '.join(engine.packages)}"
    host.run(["sh", "-c", f"{install} >/dev/null && rm -rf {engines.ENGINES}/*"])
    host.run(["sh", "-c", "python3.11 -m venv /root/uv && /root/uv/bin/pip install -qr /opt/sglang/uv/uv.lock"])
    digest = host.run(["sh", "-c", "sha256sum </opt/sglang/uv/uv.lock | cut -c-16"]).stdout.strip()
    host.run(["sh", "-c", f"test -e /opt/sglang/uv/{digest} || ln -s /root/uv /opt/sglang/uv/{digest}"])


def _plain_s(host: Host, engine: EngineOnHost) -> float:
    host.write_file("/root/engine.lock", engine.engine.lock.decode())
    uv = "UV_LINK_MODE=hardlink UV_CACHE_DIR=/root/plain.cache /root/uv/bin/uv"
    links = f"--find-links {WHEELS_INSIDE}" if wheel_folder() else ""
    sync = f"{uv} pip sync -q --require-hashes --compile-bytecode {links} --python {_PLAIN}/bin/python"
    seconds = _seconds(host, f"{uv} venv -q --python /usr/bin/python3.11 {_PLAIN} && {sync} /root/engine.lock")
    host.run(["rm", "-rf", _PLAIN, f"{_PLAIN}.cache"])
    return seconds


def _install_s(host: Host, engine: EngineOnHost) -> float:
    host.run(["sh", "-c", f"rm -rf {engines.ENGINES}/*"])
    began = float(host.read_file("/proc/uptime").split()[0])
    result = engines.install(host, engine, find_links=WHEELS_INSIDE if wheel_folder() else None)
    if result["code"]:
        raise timed.Failed(f"{result['message']}: {result['excerpt']}")
    return float(host.read_file("/proc/uptime").split()[0]) - began


def _seconds(host: Host, script: str) -> float:
    done = host.run(["bash", "-c", _TIMED.format(script)], limit_s=timed.LIMIT_S)
    return float(done.stderr.split()[-1])
