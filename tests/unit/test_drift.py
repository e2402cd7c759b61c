"""A restart is derived from what a process was started from; all else is put right beside it."""

from collections.abc import Callable
from typing import Any

import pytest

from serving import drift
from serving.release import Release
from serving.schemas import HostState
from tests.unit import worlds

SERVICE = "sglang-server.service"
UNIT_FILE = f"/etc/systemd/system/{SERVICE}"
NCCL = "/etc/sglang/nccl.env"


def served(release: Release) -> dict[str, Any]:
    """A host that serves the release, as the look shows it."""
    started = {
        "invocation_id": "abc",
        "release": release.digest,
        "engine_intact": True,
        "files": {
            file.path: drift.said_to_systemd(file) for file in release.files if file.path.endswith((".env", ".service"))
        },
    }
    return {
        "units": {SERVICE: worlds.unit_state(started=started), "sglang.target": worlds.unit_state(main_pid=0)},
        "files": {file.path: worlds.text_file(sha256=file.sha256, mode=file.mode) for file in release.files},
        "engines": {release.plan.engine_digest: {"package": "sglang", "versions": {}, "changed": []}},
        "active": release.digest,
        "last_good": release.digest,
    }


def state_after(release: Release, change: Callable[[dict[str, Any]], None]) -> HostState:
    document = served(release)
    change(document)
    return worlds.host_state(**document)


@pytest.fixture
def release() -> Release:
    return worlds.release()


def test_a_served_host_has_nothing_to_do(release: Release) -> None:
    state = state_after(release, lambda document: None)
    assert drift.to_put_right(release, state) == []
    assert drift.to_start(release, state) == []
    assert drift.is_proven(release, state)


BESIDE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "an edited file": (lambda d: d["files"][NCCL].update(sha256="1" * 64), f"{NCCL}: edited"),
    "a deleted file": (lambda d: d["files"].pop(NCCL), f"{NCCL}: missing"),
    "another mode": (lambda d: d["files"][NCCL].update(mode="600"), f"{NCCL}: mode 600 instead of 644"),
    "another owner": (lambda d: d["files"][NCCL].update(owner="ana"), f"{NCCL}: owner ana:root instead of root:root"),
    "a masked unit": (
        lambda d: d["files"][UNIT_FILE].update(type="link", target="/dev/null"),
        f"{UNIT_FILE}: a link to /dev/null",
    ),
    "a drop-in of `systemctl edit`": (
        lambda d: d["files"].update({f"{UNIT_FILE}.d/override.conf": worlds.text_file()}),
        f"{UNIT_FILE}.d/override.conf: a drop-in that the release does not have",
    ),
    "a disabled unit": (
        lambda d: d["units"][SERVICE].update(enabled="disabled"),
        f"{SERVICE}: disabled instead of enabled",
    ),
    "a lost link": (lambda d: d.update(active=None), "/var/lib/sglang/active: missing instead of"),
    "a unit of another release": (
        lambda d: d["units"].update({"sglang-decode.service": worlds.unit_state()}),
        "sglang-decode.service: active, a unit of another release",
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_is_put_right_beside_a_right_process(release: Release, name: str) -> None:
    change, expected = BESIDE[name]
    state = state_after(release, change)
    [difference] = drift.to_put_right(release, state)
    assert difference.startswith(expected)
    assert drift.to_start(release, state) == []


FROM: dict[str, Callable[[dict[str, Any]], Any]] = {
    "stopped": lambda unit: unit.update(active="inactive"),
    "failed": lambda unit: unit.update(active="failed"),
    "waiting for its restart": lambda unit: unit.update(active="activating"),
    "started by hand from another release": lambda unit: unit["started"].update(release="another"),
    "started from an edited file": lambda unit: unit["started"]["files"].update({NCCL: "0" * 64}),
    "started with a drop-in": lambda unit: unit["started"]["files"].update({f"{UNIT_FILE}.d/override.conf": "0" * 64}),
    "started from a damaged engine": lambda unit: unit["started"].update(engine_intact=False),
    "an invocation that nobody noted": lambda unit: unit.update(invocation_id="another"),
    "without any note": lambda unit: unit.update(started=None),
}


@pytest.mark.parametrize("name", FROM)
def test_is_started_anew_where_what_it_runs_from_differs(release: Release, name: str) -> None:
    state = state_after(release, lambda document: FROM[name](document["units"][SERVICE]))
    assert drift.to_start(release, state) == [SERVICE]


@pytest.mark.parametrize("change", [{"last_good": None}, {"last_good": "another"}, {"jobs": ["activation"]}])
def test_a_release_that_did_not_climb_the_ladder_is_proven_again(release: Release, change: dict[str, Any]) -> None:
    assert not drift.is_proven(release, state_after(release, lambda document: document.update(change)))


def test_a_changed_engine_is_named_by_its_folders(release: Release) -> None:
    engine = release.plan.engine_digest
    state = state_after(release, lambda document: document["engines"][engine].update(changed=["lib/torch"]))
    assert drift.engine_damage(release.plan.engine, state) == ["lib/torch"]
    assert drift.to_start(release, state) == [], "the process was started before it changed"


def test_a_unit_of_somebody_else_is_left_alone(release: Release) -> None:
    foreign = {"/etc/systemd/system/sglang-old.service": worlds.text_file()}
    state = state_after(release, lambda document: document["files"].update(foreign))
    assert drift.to_put_right(release, state) == []
