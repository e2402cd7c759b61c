"""A release is named by what starts; every rendered file is known as a whole."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serving import release as release_module
from serving.plan import GROUP_DATA
from serving.release import Release
from serving.render import render
from tests.unit import worlds

GOLDEN = Path(__file__).parent.parent / "golden"
PROFILES = sorted(path.stem for path in (GROUP_DATA / "profiles").glob("*.yaml"))


@pytest.mark.parametrize("profile", PROFILES)
def test_rendered_files_equal_the_golden_ones(profile: str) -> None:
    """Run with UPDATE_GOLDEN=1 to write them anew; the diff is then the review. A new lock changes none of them."""
    release = worlds.release(worlds.host_of(profile), profile=profile)
    rendered = {file.path[1:].replace("/", "__"): _nameless(file.text, release) for file in release.files}
    folder = GOLDEN / profile
    if os.environ.get("UPDATE_GOLDEN"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in rendered.items():
            (folder / name).write_text(text, encoding="utf-8")
    assert rendered == {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def _nameless(text: str, release: Release) -> str:
    for engine in release.plan.engines:
        text = text.replace(engine.digest, "ROUTER" if engine.data.package == "sglang-router" else "ENGINE")
    return text


def gates_changed(release: Release, **changes: Any) -> Release:
    profile = release.plan.wanted.profile
    gates = profile.gates.model_copy(update=changes)
    return _with_profile(release, profile.model_copy(update={"gates": gates}))


def _with_profile(release: Release, profile: Any) -> Release:
    return Release(replace(release.plan, wanted=replace(release.plan.wanted, profile=profile)))


def test_the_same_plan_has_the_same_name() -> None:
    assert worlds.release().digest == worlds.release().digest


def test_a_changed_gate_keeps_the_name() -> None:
    release = worlds.release()
    changed = gates_changed(release, start_within_s=99, question="who are you?")
    assert changed.digest == release.digest
    assert changed.gates != release.gates


def test_other_gpus_or_ports_are_another_release() -> None:
    release = worlds.release()
    moved = worlds.release(worlds.host_state(gpus=[worlds.gpu(index) for index in range(1, 8)]))
    assert len({release.digest, moved.digest, worlds.release(port=30001).digest}) == 3


def test_a_comment_is_no_new_release(monkeypatch: pytest.MonkeyPatch) -> None:
    release = worlds.release()
    before = (release.digest, release.document)
    monkeypatch.setattr(release_module, "render", lambda *names, **values: "# a note\n\n" + render(*names, **values))
    commented = worlds.release()
    assert commented.digest == before[0]
    assert commented.document != before[1]


def test_the_document_holds_all_that_activation_needs() -> None:
    document = json.loads(worlds.release().document)
    assert document["units"][0]["argv"][:3] == [
        document["engine"]["folder"] + "/bin/python",
        "-m",
        "sglang.launch_server",
    ]
    assert document["units"][0]["environment"]["NCCL_PROTO"] == "LL"
