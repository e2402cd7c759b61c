"""The way back to an older engine: a profile is judged by that engine's own flags, before anything is done."""

from pathlib import Path
from shutil import copytree

import pytest

from serving.plan import GROUP_DATA, load_wanted
from serving.problems import Refused
from tests.unit import worlds

PROFILES = sorted(path.stem for path in (GROUP_DATA / "profiles").glob("*.yaml") if "sandbox" not in path.stem)
OLDER = ("sglang-0.5.22", "sglang-0.5.21")


@pytest.mark.parametrize("engine", OLDER)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_shipped_profile_may_go_back(profile: str, engine: str) -> None:
    plan = worlds.plan(profile=profile, engine=engine)
    assert plan.engine.name == engine
    assert all(unit.argv[0].startswith(plan.engine_folder) for unit in plan.workers)


def test_what_one_engine_compiled_is_never_used_by_another() -> None:
    """Everything that compiles keeps its results below HOME, XDG_CACHE_HOME or SGLANG_CACHE_DIR (sglang 0.5.23)."""
    folders = set()
    for engine in ("sglang-0.5.23", *OLDER):
        plan = worlds.plan(profile="tp4-mxfp4", engine=engine)
        environment = plan.entry.environment
        assert {environment[name] for name in ("HOME", "XDG_CACHE_HOME", "SGLANG_CACHE_DIR")} == {plan.cache_folder}
        assert environment["CUDA_HOME"] == f"{plan.engine_folder}/cuda"
        folders.add(plan.cache_folder)
    assert len(folders) == 3


@pytest.mark.parametrize(
    ("engine", "arguments", "expected"),
    [
        ("sglang-0.5.21", "attn_dp_size: 2", "arguments.attn_dp_size: is unknown to sglang 0.5.21"),
        ("sglang-0.5.22", "enable_paged_experts: true", "arguments.enable_paged_experts: is unknown to sglang 0.5.22"),
        ("sglang-0.5.21", "load_format: instanttensor", "arguments.load_format: 'instanttensor' is no choice; "),
    ],
)
def test_what_the_older_engine_lacks_is_refused_by_name(
    engine: str, arguments: str, expected: str, tmp_path: Path
) -> None:
    copy = Path(copytree(GROUP_DATA, tmp_path / "group_data"))
    (copy / "profiles/mine.yaml").write_text(f"extends: tp4-mxfp4\narguments: {{{arguments}}}\n")
    load_wanted(worlds.site(profile="mine"), copy)  # the newest engine knows it
    with pytest.raises(Refused) as refusal:
        load_wanted(worlds.site(profile="mine", engine=engine), copy)
    [problem] = refusal.value.problems
    assert f"group_data/profiles/mine.yaml: {expected}" in str(problem)
