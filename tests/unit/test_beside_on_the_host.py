"""Which release may start beside the active one, as the host itself decides it."""

import json
from typing import Any

import pytest

from hostkit import beside, proving, release
from serving.plan import load_wanted, make_plan
from serving.release import Release
from tests.unit import worlds


def document(profile: str = "sandbox-replicas", second: bool = False, **changes: Any) -> dict[str, Any]:
    plan = make_plan(load_wanted(worlds.site(profile=profile)), worlds.host_of("sandbox"), second)
    content: dict[str, Any] = json.loads(Release(plan).document)
    return {**content, **changes}


@pytest.fixture
def active(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The first place is active, and its router runs."""
    old = document(digest="earlier")
    monkeypatch.setattr(release, "active", lambda: "earlier")
    monkeypatch.setattr(release, "load", lambda digest: old)
    monkeypatch.setattr(proving, "lacking", lambda target: [])
    return old


def test_replicas_at_the_other_place_fit_beside(active: dict[str, Any]) -> None:
    assert beside.old_one(document(second=True)) == active


def test_those_at_the_same_place_do_not(active: dict[str, Any]) -> None:
    assert beside.old_one(document()) is None


def test_another_topology_does_not(active: dict[str, Any]) -> None:
    assert beside.old_one(document("sandbox-pd")) is None
    assert beside.old_one(document("sandbox")) is None


def test_a_router_that_would_be_started_otherwise_is_not_kept(active: dict[str, Any]) -> None:
    new = document(second=True)
    new["units"][-1]["argv"].append("--disable-retries")
    assert beside.old_one(new) is None


def test_a_router_that_does_not_run_is_started_as_any_unit(
    active: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proving, "lacking", lambda target: ["sglang-router.service"])
    assert beside.old_one(document(second=True)) is None
