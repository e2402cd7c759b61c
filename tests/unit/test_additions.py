"""Wheels and patches of one's own are data of the engine, and part of its name."""

import hashlib
from pathlib import Path
from shutil import copytree

import pytest

from serving.engine import Engine, EngineOnHost
from serving.plan import GROUP_DATA
from serving.problems import Refused

SHA = "ab" * 32
WHEEL = "sglang_kernel-0.4.10+sm120-cp310-abi3-manylinux_2_34_x86_64.whl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(copytree(GROUP_DATA / "engines", tmp_path / "engines"))


def engine(folder: Path, extra: str) -> EngineOnHost:
    text = (folder / "sglang-0.5.23.yaml").read_text()
    (folder / "mine.yaml").write_text(text + extra)
    return EngineOnHost(Engine(folder, "mine"), "3.12")


def refusal(folder: Path, extra: str) -> str:
    with pytest.raises(Refused) as refused:
        engine(folder, extra)
    [problem] = refused.value.problems
    return str(problem)


def test_a_wheel_replaces_that_of_the_lock_and_gives_another_name(folder: Path) -> None:
    plain = engine(folder, "")
    mine = engine(folder, f"wheels:\n  - url: https://wheels.example/{WHEEL}\n    sha256: {SHA}\n")
    lock = mine.engine.lock.decode()
    assert "sglang-kernel==" not in lock
    assert f"sglang-kernel @ https://wheels.example/{WHEEL} \\\n    --hash=sha256:{SHA}\n" in lock
    assert len(lock.splitlines()) < len(plain.engine.lock.decode().splitlines()) + 2
    assert "\nsglang==0.5.23" in lock, "a package whose name only begins the same stays"
    assert plain.digest != mine.digest


def test_a_wheel_that_the_lock_does_not_have_comes_on_top(folder: Path) -> None:
    extra = f"wheels:\n  - url: https://wheels.example/my_kernel-1.0-py3-none-any.whl\n    sha256: {SHA}\n"
    assert engine(folder, extra).engine.lock.startswith(engine(folder, "").engine.lock.rstrip(b"\n")[:1000])
    assert b"my-kernel @ https://" in engine(folder, extra).engine.lock


def test_a_wheel_of_a_file_is_named_by_its_content(folder: Path) -> None:
    (folder / "wheels").mkdir()
    (folder / "wheels" / WHEEL).write_bytes(b"wheel")
    sha = hashlib.sha256(b"wheel").hexdigest()
    mine = engine(folder, f"wheels:\n  - file: {WHEEL}\n    sha256: {sha}\n")
    assert f"@ file:///opt/sglang/wheels/{sha[:16]}/{WHEEL}" in mine.engine.lock.decode()
    assert mine.engine.wheel(mine.data.wheels[0]) == b"wheel"
    assert "has sha256 " in refusal(folder, f"wheels:\n  - file: {WHEEL}\n    sha256: {SHA}\n")


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (f"wheels:\n  - sha256: {SHA}\n", "wheels.0: needs one of url and file; write the one that it comes from"),
        (
            "wheels:\n  - url: https://x/kernel.whl\n    sha256: " + SHA,
            "kernel.whl is no name of a wheel; name a wheel as",
        ),
        (f"wheels:\n  - file: {WHEEL}\n    sha256: abc\n", "wheels.0.sha256: string should match pattern"),
        (f"wheels:\n  - file: {WHEEL}\n    sha256: {SHA}\n", f"wheels.{WHEEL}: does not exist; put it into group_data"),
        ("patches: mine\n", "patches: no *.patch file lies in group_data/engines/patches/mine/; put the diffs there"),
        ("patches: ../../etc\n", "patches: string should match pattern"),
    ],
)
def test_what_is_wrong_with_them_is_said_before_any_host_is_asked(folder: Path, extra: str, expected: str) -> None:
    assert expected in refusal(folder, extra)


def test_patches_are_taken_in_the_order_of_their_names_and_name_the_engine(folder: Path) -> None:
    patches = folder / "patches/mine"
    patches.mkdir(parents=True)
    for name in ("02-b.patch", "01-a.patch"):
        (patches / name).write_text(f"--- {name}\n")
    mine = engine(folder, "patches: mine\n")
    assert [name for name, _ in mine.engine.patches.texts] == ["01-a.patch", "02-b.patch"]
    assert "patch" in mine.packages
    before = mine.digest
    (patches / "01-a.patch").write_text("--- other\n")
    assert len({before, engine(folder, "patches: mine\n").digest, engine(folder, "").digest}) == 3
