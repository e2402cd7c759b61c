"""A host without a network: what a bundle must hold, and what is said where it does not."""

from typing import Any

from serving import air_gap, refusals
from serving.problems import Refused
from tests.unit import worlds

FOLDER = "/media/usb/sglang"
PACKAGES = {"python3.12-venv": "3.12", "python3.12-dev": "3.12", "g++": "13"}


def lines(bundle: dict[str, Any] | None, packages: dict[str, str] = PACKAGES) -> list[str]:
    """What is refused because of the bundle or of packages."""
    release = worlds.release(worlds.host_state(bundle=bundle, packages=packages), bundle=FOLDER)
    try:
        refusals.check(release.plan, release)
    except Refused as refusal:
        return [str(one) for one in refusal.problems if "bundle" in str(one) or "packages" in str(one)]
    return []


def whole() -> dict[str, Any]:
    return {"locks": [air_gap.digest_of(worlds.plan().engine.engine.lock)]}


def test_a_bundle_that_has_all_is_not_refused() -> None:
    assert lines(whole()) == []


def test_a_bundle_that_is_not_there_is_refused_with_the_command_that_makes_it() -> None:
    [line] = lines(None)
    assert line.startswith(f"gpu1: bundle {FOLDER}: has no bundle.json that can be read; make bundle PROFILE=tp4-mxfp4")


def test_a_bundle_of_another_lock_is_refused() -> None:
    [line] = lines({"locks": ["0" * 64]})
    assert "has not the wheels of sglang-0.5.23 as group_data has it now" in line


def test_packages_of_the_distribution_are_named_as_no_bundle_brings_them() -> None:
    [line] = lines(whole(), {"python3.12-venv": "3.12"})
    assert line.startswith("gpu1: packages: g++, python3.12-dev are missing, and a bundle brings no packages")
    assert line.endswith("apt-get install g++ python3.12-dev")


def test_without_a_bundle_packages_are_installed_and_not_refused() -> None:
    release = worlds.release(worlds.host_state(packages={}))
    assert [*refusals._bundle(release.plan)] == []


def test_wheels_that_the_deploy_itself_carries_are_not_fetched() -> None:
    text = "# a lock\na==1 \\\n    --hash=sha256:1\nb @ file:///x/b.whl \\\n    --hash=sha256:2\nc @ https://x/c.whl\n"
    assert "".join(air_gap._fetched_lines(text)) == "# a lock\na==1 \\\n    --hash=sha256:1\nc @ https://x/c.whl\n"
