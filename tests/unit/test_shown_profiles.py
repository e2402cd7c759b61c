"""What an operator sees of the profiles: each one whole, and the table in the README."""

import pytest
import yaml

from serving import profile_table, show
from serving.plan import GROUP_DATA
from serving.problems import Refused
from serving.profile import Profile, load_profile

PROFILES = sorted(path.stem for path in (GROUP_DATA / "profiles").glob("*.yaml"))


def test_the_readme_has_the_table_that_the_profiles_make() -> None:
    text = profile_table.README.read_text(encoding="utf-8")
    assert profile_table.with_table(text) == text, "make readme"


def test_a_readme_without_its_markers_is_not_written() -> None:
    with pytest.raises(ValueError, match="lacks the line"):
        profile_table.with_table("# a title\n")


def test_a_profile_is_shown_with_what_it_extends_and_each_command_line() -> None:
    text = show.shown("pd")
    whole = yaml.safe_load(text.split("\n\n# ")[0])
    assert whole["arguments"]["mem_fraction_static"] == 0.85
    assert whole["topology"] == "pd"
    for line in (
        "# sglang-decode on GPU 4,5,6,7, 127.0.0.1:30200",
        "    --disaggregation-mode decode \\",
        "# sglang-router, 127.0.0.1:30000",
        "    --prefill http://127.0.0.1:30100 8998 \\",
    ):
        assert line in text.splitlines(), line


def test_an_unknown_profile_is_refused_with_near_names() -> None:
    with pytest.raises(Refused, match="did you mean pd"):
        show.shown("pdd")


@pytest.mark.parametrize("name", [name for name in PROFILES if not name.startswith("sandbox")])
def test_context_streams_and_graphs_are_set_and_fit_together(name: str) -> None:
    """A graph for a batch that never comes costs memory and start time."""
    profile = load_profile(GROUP_DATA / "profiles", name)
    streams = number(profile, "max_running_requests")
    assert number(profile, "context_length") > 0
    for role in profile.worker_roles:
        graphs = profile.overrides(role).arguments.get(
            "cuda_graph_max_bs_decode", number(profile, "cuda_graph_max_bs_decode")
        )
        assert graphs is None or 0 < int(str(graphs)) <= streams, role


def number(profile: Profile, name: str) -> int:
    value = profile.arguments[name]
    assert isinstance(value, int)
    return value
