"""What a command takes beside the settings of group_data."""

from typing import Any

import pytest

from serving.problems import Refused
from serving.site import LogOptions, load_options
from tests.unit import worlds


def options(**given: Any) -> LogOptions:
    settings = {"profile": "tp4-mxfp4", "models": "/srv/models", "listen": "127.0.0.1", "port": 30000}
    return load_options(LogOptions, {**settings, "restart": "allow", **given})


def test_a_command_has_options_beside_the_settings() -> None:
    assert options() == options(lines=200)
    assert options(unit="sglang-server", since="2 hours ago").unit == "sglang-server"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"line": 5}, "group_data: line: unknown key; did you mean lines"),
        ({"lines": 0}, "group_data: lines: input should be greater than 0, not 0"),
        ({"lines": "many"}, "group_data: lines: input should be a valid integer"),
        ({"unit": "a b"}, "group_data: unit: string should match pattern"),
    ],
)
def test_a_wrong_option_is_one_line(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(Refused) as refusal:
        options(**given)
    assert [str(problem).startswith(expected) for problem in refusal.value.problems] == [True], str(refusal.value)


def test_a_commands_option_is_no_setting_of_a_deployment() -> None:
    with pytest.raises(Refused, match="lines: unknown key"):
        worlds.site(lines=5)
