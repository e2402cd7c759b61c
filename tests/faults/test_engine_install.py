"""Installing an engine on a systemd host: what goes wrong is said in a line, and what is there stays as it was."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.fleet import Sandbox
from sandbox.machine import Host
from tests import engines, tiny
from tests.engines import ENGINES

pytestmark = pytest.mark.host

PARTIAL = f"{ENGINES}/*.partial"
SITE_PACKAGES = "lib/python3.11/site-packages"
# How far an installation is when it is cut off, as a path that is there by then.
MOMENTS = {
    "the environment is new": f"{PARTIAL}/bin/python",
    "packages come in": f"{PARTIAL}/{SITE_PACKAGES}/tiny_kernel",
    "it is checked": "/tmp/sglang-import-*",
    "it has its name": f"{ENGINES}/????????????????/engine.json",
}
PATCH = """\
--- a/tiny_kernel/__init__.py
+++ b/tiny_kernel/__init__.py
@@ -1 +1,2 @@
-SPEED = {old}
+SPEED = 2
+TUNED = True
--- /dev/null
+++ b/tiny_kernel/more.py
@@ -0,0 +1 @@
+MORE = 1
"""


@pytest.fixture(scope="module")
def machine(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with uv, from the registries that this computer uses: those do not have the tiny packages."""
    host = engines.fresh(sandbox, "engines")
    nowhere = engines.install(host, engines.made(tmp_path_factory.mktemp("first")).engine())
    assert "tiny-kernel was not found in the package registry" in nowhere["message"]
    yield host
    sandbox.down(host.name)


@pytest.fixture
def host(machine: Host, tmp_path: Path) -> Host:
    """The host without any engine, with the packages' index."""
    machine.shell(f"umount {ENGINES} 2>/dev/null; rm -rf {ENGINES}/* /opt/sglang/wheels")
    engines.publish(machine, tiny.wheels(tmp_path / "published"))
    return machine


def refused(host: Host, engine: Any, **site: Any) -> str:
    """The one line of a refusal, after which nothing new is there."""
    before = engines.installed(host)
    result = engines.install(host, engine, **site)
    assert result["code"] == 2, result
    assert engines.installed(host) == before
    assert "\n" not in result["message"]
    return str(result["message"])


def test_an_engine_is_roots_compiled_and_equals_its_lock(host: Host, tmp_path: Path) -> None:
    engine = engines.made(tmp_path).engine()
    result = engines.install(host, engine)
    assert result["code"] == 0, result
    assert engines.installed(host) == [engine.digest]
    assert engines.packages(host, engine) == "tiny-kernel==2.0\ntiny-server==1.0\n"
    assert host.shell(f"find {engine.folder} ! -user root").stdout == ""
    assert "slow.cpython-311.pyc" in host.shell(f"find {engine.folder} -name '*.pyc'").stdout
    assert engines.install(host, engine)["message"] == f"engine {engine.digest} is there"


def test_two_hosts_with_one_lock_have_the_same_packages(host: Host, sandbox: Sandbox, tmp_path: Path) -> None:
    engine = engines.made(tmp_path).engine()
    other = engines.fresh(sandbox, "engines-too")
    try:
        other.shell("mkdir -p /opt/sglang/uv")
        engines.install(other, engine)  # brings uv from the registry
        engines.publish(other, tiny.wheels(tmp_path / "too"))
        assert engines.install(host, engine)["code"] == engines.install(other, engine)["code"] == 0
        listed = "cd {}; find . -type f ! -name engine.json ! -name '*.pyc' | sort | xargs sha256sum"
        lists = [one.shell(listed.format(engine.folder)).stdout for one in (host, other)]
        assert lists[0] == lists[1] != ""
        assert engines.packages(host, engine) == engines.packages(other, engine)
    finally:
        sandbox.down(other.name)


def test_a_wheel_that_was_tampered_with_is_refused(host: Host, tmp_path: Path) -> None:
    fake = tiny.wheel(tmp_path / "fake", "tiny-kernel", "2.0", {"tiny_kernel/__init__.py": "SPEED = 99\n"})
    engines.publish(host, [fake, *tiny.wheels(tmp_path)[:1]])
    engine = engines.made(tmp_path / "right").engine()
    message = refused(host, engine)
    assert "tiny-kernel==2.0 is not the file that the lock names" in message
    assert f"found {tiny.sha256(fake)[:12]}...): it was tampered with or replaced; mend the registry" in message


def test_a_registry_that_is_gone_is_said_in_a_line(host: Host, tmp_path: Path) -> None:
    host.shell("systemctl stop index")
    message = refused(host, engines.made(tmp_path).engine())
    assert "the package registry cannot be reached (Connection refused (os error 111)); mend the network" in message


def test_a_registry_that_goes_in_the_middle_is_the_same(host: Host, tmp_path: Path) -> None:
    engine = engines.made(tmp_path).engine()
    at(host, MOMENTS["the environment is new"], "systemctl stop index")
    first = engines.install(host, engine)
    if first["code"]:  # the packages may have been fetched already
        assert "the package registry cannot be reached" in first["message"]
    engines.publish(host, tiny.wheels(tmp_path / "again"))
    assert engines.install(host, engine)["code"] == 0
    assert engines.installed(host) == [engine.digest]


def test_a_disk_too_small_is_refused_before_anything_is_fetched(host: Host, tmp_path: Path) -> None:
    host.run(["mount", "-t", "tmpfs", "-o", "size=10M", "tmpfs", ENGINES])
    message = refused(host, engines.made(tmp_path).engine())
    assert f"the disk of {ENGINES} has 0.0 GB free, 0.0 GB are needed; free the difference" in message


def test_a_disk_that_fills_up_is_said_and_given_back(host: Host, tmp_path: Path) -> None:
    made = engines.made(tmp_path)
    ballast = tiny.wheel(tmp_path, "tiny-ballast", "1.0", {"tiny_ballast/data.txt": "0" * (40 << 20)})
    made.wheels.append(ballast)
    engines.publish(host, made.wheels)
    host.run(["mount", "-t", "tmpfs", "-o", "size=30M", "tmpfs", ENGINES])
    assert f"the disk of {ENGINES} is full; free some of it and run again" in refused(host, made.engine())
    assert int(host.shell(f"df --output=used -k {ENGINES} | tail -1").stdout) < 1000, "what it took is free again"


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_any_moment_a_second_run_ends_with_the_same_engine(host: Host, tmp_path: Path, moment: str) -> None:
    engine = engines.made(tmp_path).engine()
    at(host, MOMENTS[moment], "systemctl kill --signal=KILL --kill-whom=all sglang-job-engine.service")
    first = engines.install(host, engine)
    if moment != "it has its name":
        assert first["code"] == 1, f"it was to be killed: {first}"
        assert engine.digest not in engines.installed(host)
    assert engines.install(host, engine)["code"] == 0
    assert engines.installed(host) == [engine.digest], "nothing of the first one is left"
    assert engines.packages(host, engine) == "tiny-kernel==2.0\ntiny-server==1.0\n"


def test_after_a_power_cut_a_second_run_ends_with_the_same_engine(host: Host, sandbox: Sandbox, tmp_path: Path) -> None:
    engine = engines.made(tmp_path).engine()
    at(host, MOMENTS["packages come in"], "systemctl kill --signal=STOP --kill-whom=all sglang-job-engine; touch /now")
    engines.begin(host, engine)
    host.run(["sh", "-c", "until test -e /now; do sleep 0.05; done; rm /now"], limit_s=60)
    sandbox.powercut(host.name)
    sandbox.up(host.name, keep=True)
    engines.publish(host, tiny.wheels(tmp_path / "again"))
    assert engines.install(host, engine)["code"] == 0
    assert engines.installed(host) == [engine.digest]


def test_an_edit_in_place_is_found_deep_named_and_replaced(host: Host, tmp_path: Path) -> None:
    engine = engines.made(tmp_path).engine()
    engines.install(host, engine)
    edited = f"{engine.folder}/{SITE_PACKAGES}/tiny_kernel/slow.py"
    inode = host.shell(f"stat -c %i {engine.folder}").stdout
    assert engines.install(host, engine, deep=True)["message"] == f"engine {engine.digest} is there, every file"
    host.shell(f"cp -p {edited} /root/before; echo 'def run(): return 2' >{edited}; touch -r /root/before {edited}")
    note = '{"engine_intact": true}'
    host.write_file("/run/sglang/sglang-server.json", note)
    assert engines.install(host, engine)["message"] == f"engine {engine.digest} is there", "the look does not see it"
    result = engines.install(host, engine, deep=True)
    assert result["code"] == 0
    assert result["message"].endswith(f"in which was changed: {SITE_PACKAGES}/tiny_kernel/slow.py")
    assert host.read_file(edited) == "def run(): return 1\n"
    assert host.shell(f"stat -c %i {engine.folder}").stdout != inode, "a folder of its own took the old one's place"
    assert "false" in host.read_file("/run/sglang/sglang-server.json"), "a server started since may run what was edited"


def test_patches_are_applied_in_order_and_part_of_the_name(host: Host, tmp_path: Path) -> None:
    plain = engines.made(tmp_path / "plain").engine()
    second = "--- a/tiny_kernel/more.py\n+++ b/tiny_kernel/more.py\n@@ -1 +1 @@\n-MORE = 1\n+MORE = 2\n"
    made = engines.made(tmp_path, extra="patches: mine\n")
    made.patches = {"01-speed.patch": PATCH.format(old=1), "02-more.patch": second}
    engine = made.engine()
    assert engine.digest != plain.digest
    result = engines.install(host, engine)
    assert result["code"] == 0, result
    script = "import tiny_kernel, tiny_kernel.more as m; print(tiny_kernel.SPEED, tiny_kernel.TUNED, m.MORE)"
    assert host.run([engine.interpreter, "-c", script]).stdout == "2 True 2\n"
    assert engines.install(host, engine, deep=True)["message"].endswith("every file"), "as patched is as it should be"


def test_a_patch_that_does_not_apply_leaves_what_is_there(host: Host, tmp_path: Path) -> None:
    plain = engines.made(tmp_path / "plain").engine()
    engines.install(host, plain)
    made = engines.made(tmp_path, extra="patches: mine\n")
    made.patches = {"01-speed.patch": PATCH.format(old=7)}
    message = refused(host, made.engine())
    assert "the patch 01-speed.patch does not apply: " in message
    assert engines.installed(host) == [plain.digest]
    assert engines.install(host, plain, deep=True)["message"].endswith("every file")


@pytest.mark.parametrize("place", ["file", "url"])
def test_a_wheel_of_ones_own_replaces_that_of_the_lock(host: Host, tmp_path: Path, place: str) -> None:
    files = {"tiny_kernel/__init__.py": "SPEED = 'sm_120'\n"}
    mine = tiny.wheel(tmp_path / "engines/wheels", "tiny-kernel", "2.0+sm120", files)
    where = f"file: {mine.name}" if place == "file" else f"url: http://127.0.0.1:8765/mine/{mine.name}"
    engines.put(host, mine, f"/srv/index/mine/{mine.name}")
    made = engines.made(tmp_path, extra=f"wheels:\n  - {where}\n    sha256: {tiny.sha256(mine)}\n")
    promised = tiny.ENGINE.replace('tiny-kernel: "2.0"', 'tiny-kernel: "2.0+sm120"')
    engine = made.engine(promised)
    result = engines.install(host, engine)
    assert result["code"] == 0, result
    assert host.run([engine.interpreter, "-c", "import tiny_kernel as t; print(t.SPEED)"]).stdout == "sm_120\n"


def test_a_wheel_from_an_address_with_another_content_is_refused(host: Host, tmp_path: Path) -> None:
    mine = tiny.wheel(tmp_path / "mine", "tiny-kernel", "2.0", {"tiny_kernel/__init__.py": ""})
    engines.put(host, mine, f"/srv/index/mine/{mine.name}")
    where = f"wheels:\n  - url: http://127.0.0.1:8765/mine/{mine.name}\n    sha256: {'ab' * 32}\n"
    message = refused(host, engines.made(tmp_path, extra=where).engine())
    assert f"is not the file that the lock names (sha256 abababababab..., found {tiny.sha256(mine)[:12]}...)" in message


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("tiny_server/launch.py", "import missing\n", "ModuleNotFoundError: No module named 'missing'; mend its lock"),
        (
            "tiny_server/launch.py",
            "raise SystemExit(3)\n",
            "`python -m tiny_server.launch --help` of the new engine fails",
        ),
        (
            "tiny_server/__init__.py",
            "import ctypes; ctypes.CDLL('libmissing.so')\n",
            "OSError: libmissing.so: cannot open",
        ),
    ],
)
def test_an_engine_that_cannot_be_started_never_gets_its_name(
    host: Host, tmp_path: Path, file: str, content: str, expected: str
) -> None:
    made = engines.made(tmp_path)
    files = {**tiny.PACKAGES["tiny-server", "1.0"], file: content}
    made.wheels[0] = tiny.wheel(tmp_path, "tiny-server", "1.0", files)
    engines.publish(host, made.wheels)
    assert expected in refused(host, made.engine())


def test_a_lock_that_gives_another_version_than_promised_is_refused(host: Host, tmp_path: Path) -> None:
    engine = engines.made(tmp_path).engine(tiny.ENGINE.replace('tiny-kernel: "2.0"', 'tiny-kernel: "2.1"'))
    message = refused(host, engine)
    assert "the lock did not give what its engine promises: tiny-kernel is 2.0, not 2.1; make the lock anew" in message


def at(host: Host, path: str, does: str) -> None:
    """Run the script on the host as soon as there is such a path, within the next minute."""
    wait = f"until ls -d {path} >/dev/null 2>&1; do :; done"
    host.run(["systemd-run", "--collect", "--quiet", "timeout", "60", "sh", "-c", f"{wait}; {does}"])
