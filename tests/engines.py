"""A sandbox host on which engines are installed by hostkit's own job, from an index that the test runs there."""

import base64
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.fleet import Sandbox
from sandbox.machine import Host
from serving.engine import Engine, EngineOnHost
from serving.plan import GROUP_DATA
from tasks import bundle
from tasks import engine as engine_task
from tests import tiny
from tests.unit import worlds

HOSTKIT = "/opt/sglang/hostkit/test/hostkit.pyz"
ENGINES = "/opt/sglang/engines"
PYTHON = "3.11"
INDEX = "http://127.0.0.1:8765/simple"
_FOLDERS = f"{ENGINES} /opt/sglang/uv /opt/sglang/hostkit/test /var/cache/sglang /var/lib/sglang/releases"


def prepare(host: Host) -> None:
    """What the playbook's steps before the engine leave: packages, service user, folders, hostkit, uv's lock."""
    host.run(["sh", "-c", f"install -d {_FOLDERS} && useradd --system --no-create-home sglang"])
    install = "apt-get update -qq && apt-get install -qqy --no-install-recommends python3.11-venv patch >/dev/null"
    host.run(["sh", "-c", f"DEBIAN_FRONTEND=noninteractive; {install}"])
    host.run(["sh", "-c", f"base64 -d >{HOSTKIT} && chmod 755 {HOSTKIT}"], stdin=_base64(bundle.archive()))
    host.write_file("/opt/sglang/uv/uv.lock", engine_task.UV_LOCK.read_text())


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def publish(host: Host, wheels: list[Path]) -> None:
    """Have the host serve these wheels to itself, and look for packages nowhere else."""
    folder = wheels[0].parent / "index"
    tiny.index(folder, wheels)
    host.shell("systemctl stop index; rm -rf /srv/index")
    for path in folder.rglob("*"):
        if path.is_file():
            put(host, path, f"/srv/index/{path.relative_to(folder)}")
    server = ["systemd-run", "--unit=index", "--collect", "python3", "-m", "http.server", "8765", "--bind", "127.0.0.1"]
    host.run([*server, "--directory", "/srv/index"])
    host.write_file("/etc/uv/uv.toml", f'index-url = "{INDEX}"\n')
    host.run(["sh", "-c", "until curl -sf 127.0.0.1:8765/simple/ >/dev/null; do sleep 0.05; done"])


def put(host: Host, path: Path, target: str) -> None:
    host.run(["sh", "-c", f"install -d $(dirname {target}) && base64 -d >{target}"], stdin=_base64(path.read_bytes()))


@dataclass
class Made:
    """A tiny engine as a folder of group_data/engines/ has it."""

    folder: Path
    wheels: list[Path]
    extra: str = ""
    patches: dict[str, str] = field(default_factory=dict)

    def engine(self, says: str = tiny.ENGINE) -> EngineOnHost:
        """It, read by the project's own code from files written anew."""
        (self.folder / "contracts").mkdir(parents=True, exist_ok=True)
        contract = GROUP_DATA / "engines/contracts/sglang-0.5.23.json"
        (self.folder / "contracts/sglang-0.5.23.json").write_bytes(contract.read_bytes())
        (self.folder / "tiny.lock").write_text(tiny.lock(self.wheels))
        (self.folder / "tiny.yaml").write_text(says + self.extra)
        for name, text in self.patches.items():
            (self.folder / "patches/mine").mkdir(parents=True, exist_ok=True)
            (self.folder / "patches/mine" / name).write_text(text)
        return EngineOnHost(Engine(self.folder, "tiny"), PYTHON)


def made(folder: Path, **changes: Any) -> Made:
    return Made(folder / "engines", tiny.wheels(folder), **changes)


def begin(host: Host, engine: EngineOnHost, **site: Any) -> str:
    """Put the engine's parts onto the host and start its installation, with the request that the playbook makes."""
    state = worlds.host_state(pythons={PYTHON: f"/usr/bin/python{PYTHON}"})
    request = engine_task._request(worlds.plan(state, profile="sandbox", **site), engine)
    host.write_file(request["lock"], engine.engine.lock.decode())
    if request["patches"]:
        host.write_file(request["patches"], engine.engine.patches.document.decode())
    for wheel in engine.data.wheels:
        if wheel.file:
            put(host, engine.engine._folder / "wheels" / wheel.file, wheel.path_on_host)
    return host.run([HOSTKIT, "start-job", "engine", json.dumps(request)]).stdout.strip()


def end(host: Host, job: str, limit_s: float = 600) -> dict[str, Any]:
    """The result of the job."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        update = json.loads(host.run([HOSTKIT, "follow-job", "engine", job, "--after", "9999"]).stdout)
        if update["result"] is not None:
            return dict(update["result"])
    raise AssertionError(f"job {job} did not end within {limit_s} s")


def install(host: Host, engine: EngineOnHost, **site: Any) -> dict[str, Any]:
    return end(host, begin(host, engine, **site))


def installed(host: Host) -> list[str]:
    """Names of what lies in the folder of engines, locks aside."""
    return sorted(host.shell(f"cd {ENGINES}; ls -d */ 2>/dev/null").stdout.replace("/", "").split())


def packages(host: Host, engine: EngineOnHost) -> str:
    """What is installed, as uv itself lists it."""
    return host.run(["sh", "-c", f"/opt/sglang/uv/*/bin/uv pip freeze --python {engine.interpreter}"]).stdout


def fresh(sandbox: Sandbox, name: str) -> Host:
    sandbox.down(name)
    [host] = sandbox.up(name)
    prepare(host)
    return host
