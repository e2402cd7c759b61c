"""Engines on a host, without one: what is pruned, which locks are stale, what compilers and installers say."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hostkit import acceptance, compiler, jit_locks, paths, record, toolkit, uv
from tests import tiny

DIGESTS = ("old0", "new1", "lone2", "router3")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("ENGINES", "RELEASES", "CACHES", "CREDENTIALS"):
        monkeypatch.setattr(paths, name, tmp_path / name.lower())
        (tmp_path / name.lower()).mkdir()
    monkeypatch.setattr(paths, "ACTIVE", tmp_path / "active")
    monkeypatch.setattr(paths, "LAST_GOOD", tmp_path / "last-good")
    for digest in DIGESTS:
        for folder in (paths.ENGINES / digest / "bin", paths.CACHES / digest):
            folder.mkdir(parents=True)
        (paths.ENGINES / f"{digest}.lock").touch()
    return tmp_path


def release(name: str, engine: str, at: float, router: str | None = None) -> None:
    folder = paths.RELEASES / name
    folder.mkdir()
    units: list[dict[str, Any]] = [{"name": "sglang-server"}]
    units += [{"name": "sglang-router", "engine": {"digest": router}}] if router else []
    document = {"engine": {"digest": engine}, "units": units, "credential": None}
    (folder / "release.json").write_text(json.dumps(document))
    (folder / "acceptance.json").write_text(json.dumps({"at": at, "verdict": "good"}))


def engines() -> list[str]:
    return sorted(path.name for path in paths.ENGINES.iterdir() if path.is_dir())


def test_a_predecessor_stays_until_no_kept_release_needs_it(host: Path) -> None:
    release("a", "old0", at=1, router="router3")
    release("b", "new1", at=2)
    release("c", "new1", at=3)
    assert acceptance.prune(keep=3) == []
    assert engines() == sorted(DIGESTS)
    assert acceptance.prune(keep=2) == ["a"]
    assert engines() == ["lone2", "new1"], "and what belongs to no release at all is nobody's to remove"
    assert not (paths.CACHES / "old0").exists()
    assert not (paths.ENGINES / "old0.lock").exists()
    assert (paths.CACHES / "new1").exists()


def test_an_engine_that_a_process_runs_from_stays(host: Path) -> None:
    release("a", "old0", at=1)
    release("b", "new1", at=2)
    command = [sys.executable, "-c", "input()", str(paths.ENGINES / "old0/bin/python")]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert acceptance.prune(keep=1) == ["a"]
        assert "old0" in engines()
        process.communicate(b"\n")


def test_a_release_that_cannot_be_read_keeps_every_engine(host: Path) -> None:
    release("a", "old0", at=1)
    release("b", "new1", at=2)
    (paths.RELEASES / "b/release.json").write_text("{")
    acceptance.prune(keep=1)
    assert engines() == sorted(DIGESTS)


def test_lock_files_that_nobody_has_open_are_swept(tmp_path: Path) -> None:
    stale, held, other = tmp_path / "a/lock", tmp_path / "b/kernel.lock", tmp_path / "a/kernel.so"
    for path in (stale, held, other):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    with held.open():
        assert jit_locks.sweep(tmp_path) == [str(stale)]
    assert other.exists()
    assert jit_locks.sweep(tmp_path) == [str(held)]


def nvcc(tmp_path: Path, text: str) -> Path:
    program = tmp_path / "bin/nvcc"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\necho '{text}'\n")
    program.chmod(0o755)
    return program


def test_a_compiler_too_old_for_the_card_is_refused(tmp_path: Path) -> None:
    with pytest.raises(compiler.CannotCompile, match=r"bin/nvcc is 12.8, kernels for this card need 12.9 or newer: "):
        compiler._nvcc_version(nvcc(tmp_path, "Cuda compilation tools, release 12.8, V12.8.93"))
    assert compiler._nvcc_version(nvcc(tmp_path, "Cuda compilation tools, release 13.0, V13.0.88")) == "13.0"


def test_what_is_missing_to_compile_is_named(tmp_path: Path) -> None:
    with pytest.raises(compiler.CannotCompile, match=r"g\+\+ is not on the PATH of the unit .*: apt-get install g\+\+"):
        compiler.check({"PATH": str(tmp_path), "CUDA_HOME": str(tmp_path)})
    with pytest.raises(compiler.CannotCompile, match="bin/nvcc does not run"):
        compiler._nvcc_version(tmp_path / "bin/nvcc")


@pytest.mark.parametrize(("capability", "target"), [("12.0", "sm_120f"), ("12.1", "sm_121a"), ("9.0", "sm_90a")])
def test_kernels_are_compiled_for_the_card(capability: str, target: str) -> None:
    assert compiler._target(capability) == target


def test_the_toolkit_of_the_wheels_gets_the_shape_that_builds_look_for(tmp_path: Path) -> None:
    wheels = tmp_path / "lib/python3.12/site-packages/nvidia/cu13"
    for name in ("bin/nvcc", "include/cuda.h", "nvvm/bin/cicc", "lib/libcudart.so.13", "lib/libcudadevrt.a"):
        (wheels / name).parent.mkdir(parents=True, exist_ok=True)
        (wheels / name).write_text(name)
    toolkit.make(tmp_path, "nvidia/cu13")
    moved = tmp_path.rename(tmp_path.with_name("moved"))  # an engine is renamed when it is complete
    for name in ("bin/nvcc", "include/cuda.h", "nvvm/bin/cicc", "lib64/libcudart.so", "lib64/libcudart.so.13"):
        assert (moved / "cuda" / name).is_file(), name
    assert (moved / "cuda/lib64/stubs/libcuda.so").readlink() == Path("/usr/lib/x86_64-linux-gnu/libcuda.so.1")


PIP = """\
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, ...
    uv==0.13.9 from https://registry/uv.whl (from -r uv.lock (line 1)):
        Expected sha256 aaaaaaaaaaaaaaaaaaaa
        Expected     or bbbbbbbbbbbbbbbbbbbb
             Got        cccccccccccccccccccc
"""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (PIP, "uv==0.13.9 is not the file that the lock names (sha256 aaaaaaaaaaaa..., found cccccccccccc...)"),
        ("error: Failed to install\n  cause: No space left on device (os error 28)", "the disk of /opt/sglang/engines"),
        (
            "error: Failed to fetch: http://x/\n  cause: client error (Connect)\n  cause: dns error\n"
            "  cause: failed to lookup address information: Name or service not known",
            "the package registry cannot be reached (failed to lookup address information: Name or service not known)",
        ),
        (
            "error: Distribution `sglang==0.5.23` can't be installed because it has no wheel for this platform\n",
            "Distribution `sglang==0.5.23` can't be installed because it has no wheel for this platform",
        ),
        ("", "it said nothing"),
    ],
)
def test_what_installers_say_becomes_one_line(output: str, expected: str) -> None:
    assert uv.said(output).startswith(expected)
    assert "\n" not in uv.said(output)


def test_every_file_is_compared_with_what_its_package_recorded(tmp_path: Path) -> None:
    class Silent:
        def tell(self, *_: object, **__: object) -> None:
            """Progress is nobody's business here."""

    packages = tmp_path / "lib/python3.12/site-packages"
    files = {"a/one.py": "1", "a/two.py": "2", "../../../bin/a": "#!", "shared.py": "of b", "a/x.pyc": "bytecode"}
    for name, text in files.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(text)
    for package, shared in (("a", "of a"), ("b", "of b")):
        recorded = {**files, "shared.py": shared, "a/x.pyc": "of another Python"}
        lines = [f"{name},sha256={tiny._urlsafe(text)},1\n" for name, text in recorded.items()]
        (packages / f"{package}-1.dist-info").mkdir()
        (packages / f"{package}-1.dist-info/RECORD").write_text("".join([*lines, f"{package}-1.dist-info/RECORD,,\n"]))

    def damaged(patched: dict[str, str | None]) -> list[str]:
        progress: Any = Silent()
        return record.damaged(tmp_path, {"patched": patched}, progress)

    assert damaged({}) == [], "two packages may bring one file, and bytecode is made anew"
    (packages / "a/one.py").write_text("edited")
    (packages / "../../../bin/a").unlink()
    assert damaged({}) == ["bin/a", "lib/python3.12/site-packages/a/one.py"]
    edited = hashlib.sha256(b"edited").hexdigest()
    assert damaged({"lib/python3.12/site-packages/a/one.py": edited, "bin/a": None}) == []
