"""The locks: what they must hold, and what resolvers do wrong when left alone."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from requirements import lock
from serving.engine import Engine
from serving.plan import GROUP_DATA

ENGINES = GROUP_DATA / "engines"
PRODUCTION = ("sglang-0.5.23", "sglang-0.5.22", "sglang-0.5.21")
NAMES = sorted(path.stem for path in ENGINES.glob("*.yaml"))


def pins_of(name: str) -> dict[str, str]:
    return lock.pins((ENGINES / f"{name}.lock").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_has_the_versions_that_its_engine_promises(name: str) -> None:
    data = Engine(ENGINES, name).data
    found = pins_of(name)
    assert data.versions.items() <= found.items()
    assert (
        found[data.package]
        == data.version
        == json.loads((ENGINES / "contracts" / data.contract).read_text())["version"]
    )


@pytest.mark.parametrize("name", [path.name for path in sorted(ENGINES.glob("*.lock"))])
def test_every_package_of_a_lock_has_a_hash_and_no_place_of_its_own(name: str) -> None:
    text = (ENGINES / name).read_text()
    blocks = [block for block in text.split("\n\n")[0].replace(" \\\n", " ").splitlines() if block[0].isalnum()]
    assert blocks
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text, "a lock names no registry and no folder"


@pytest.mark.parametrize("name", PRODUCTION)
def test_the_compiler_of_an_engine_is_of_the_cuda_of_its_headers(name: str) -> None:
    """Where they differ FlashInfer's builds stop: "CUDA compiler and CUDA toolkit headers are incompatible"."""
    found = pins_of(name)
    parts = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime")
    assert {found[part].rpartition(".")[0] for part in parts} == {"13.0"}


@pytest.mark.parametrize("name", PRODUCTION)
def test_nixl_is_the_one_that_can_be_installed(name: str) -> None:
    found = pins_of(name)
    assert (found["nixl"], found["nixl-cu13"]) == ("1.5.1", "1.5.1")
    assert "nixl-cu12" not in found


def resolved(folder: Path, uv: str, requirement: str) -> subprocess.CompletedProcess[str]:
    (folder / "some.in").write_text(requirement + "\n")
    options = ["--python-version=3.11", "--python-platform=x86_64-manylinux_2_34", "--quiet", "--no-header"]
    command = [uv, "pip", "compile", *options, "--no-annotate", "some.in"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_nixl_1_5_2_cannot_be_installed_which_is_why_it_is_pinned(tmp_path: Path) -> None:
    done = resolved(tmp_path, lock.find_uv(), "nixl==1.5.2")
    assert done.returncode
    assert "nixl-cu1" in done.stderr


def test_an_old_uv_takes_another_sglang_and_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real: uv 0.11 resolves a bare `sglang` to a release of months ago."""
    install = [lock.find_uv(), "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path / "old"), "uv<0.12"]
    subprocess.run(install, check=True, timeout=120)
    old = tmp_path / "old/bin/uv"
    assert lock.pins(resolved(tmp_path, str(old), "sglang").stdout)["sglang"] == "0.5.9"
    monkeypatch.setattr("shutil.which", lambda *_, **__: str(old))
    with pytest.raises(lock.LockError, match=r"is uv 0\.11\.\d+, the locks are made with 0\.13\.9: pip install -r"):
        lock.find_uv()


def test_a_local_build_is_looked_for_only_where_an_override_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with torch 2.13.0+cpu would win in a lock that asks for torch 2.13.0."""
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    assert list(lock._local_builds("torch==2.13.0+cpu\n")) == ["--find-links=/wheels"]
    assert list(lock._local_builds("cuda-tile==1.6.0\n")) == []


def test_every_production_engine_is_made_from_a_few_lines() -> None:
    for name in PRODUCTION:
        lines = (ENGINES / f"{name}.in").read_text().splitlines()
        assert len([line for line in lines if line and not line.startswith("#")]) <= 5
        assert yaml.safe_load((ENGINES / f"{name}.yaml").read_text())["python"] == ["3.12", "3.11"]
