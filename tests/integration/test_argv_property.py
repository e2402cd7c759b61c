"""A random profile is refused with a clear line, or it renders an argv that the engine's own parser takes."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.machine import Host
from serving.contract import Contract, Flag
from serving.plan import GROUP_DATA
from serving.problems import Refused
from tests.playbook import unit
from tests.unit import worlds

pytestmark = pytest.mark.host

CONTRACT = Contract.load(GROUP_DATA / "engines" / "contracts" / "sglang-0.5.23.json")
# Runs in the engine's Python, with the archive of hostkit as its path: one answer for each argv.
JUDGE = (
    "import sys, json; sys.path.insert(0, sys.argv[1]); from hostkit import engine_parser as e\n"
    "parser = e.PARSERS['sglang']()\n"
    "for line in sys.stdin:\n"
    "    try: e.parse(parser, json.loads(line)); print('taken')\n"
    "    except e.Rejected as rejected: print('rejected:', rejected)\n"
)
SOME_TEXT = st.text("abcdefghijklmnopqrstuvwxyz0123456789_./=:,", min_size=1, max_size=12)


def right_value(flag: Flag) -> st.SearchStrategy[Any]:
    """Values that the flag is meant for."""
    if flag.is_switch:
        return st.booleans()
    if flag.choices:
        one: st.SearchStrategy[Any] = st.sampled_from(flag.choices)
    elif flag.type == "int":
        one = st.integers(0, 100_000)
    elif flag.type == "float":
        one = st.floats(0, 10, allow_nan=False)
    else:
        one = SOME_TEXT
    return st.lists(one, min_size=1, max_size=3) if flag.nargs in ("+", "*") else one


def mostly(usual: st.SearchStrategy[Any], rare: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 9).flatmap(lambda number: rare if number == 0 else usual)


def prefix_of(name: str) -> st.SearchStrategy[str]:
    """What people write for short; it may be ambiguous or unknown."""
    return st.integers(2, len(name)).map(lambda length: name[:length])


PLAIN = [flag for flag in CONTRACT.flags if flag.type in (None, "str", "int", "float") and flag.name != "config"]
NAMED = st.sampled_from(PLAIN).flatmap(
    lambda flag: st.tuples(mostly(st.just(flag.name), prefix_of(flag.name)), mostly(right_value(flag), SOME_TEXT))
)


def test_what_is_not_refused_is_taken_by_the_engine(host: Host) -> None:
    accepted: list[list[str]] = []
    refusals: list[str] = []

    @settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
    @given(st.lists(NAMED, max_size=6).map(dict))
    def collect(arguments: dict[str, Any]) -> None:
        try:
            resolved = CONTRACT.resolve(arguments, "group_data/profiles/random.yaml")
        except Refused as refusal:
            refusals.extend(map(str, refusal.problems))
            return
        accepted.append(["--model-path", "/m", *CONTRACT.argv(resolved.values)])

    collect()
    assert len(accepted) > 100, "the property is about profiles that pass"
    assert all(line.startswith("group_data/profiles/random.yaml: arguments.") and "; " in line for line in refusals)
    verdicts = judged_by_the_engine(host, accepted)
    wrong = [(argv, verdict) for argv, verdict in zip(accepted, verdicts, strict=True) if verdict != "taken"]
    assert wrong == []


def test_every_profile_is_taken_by_the_engine(host: Host) -> None:
    """The parser of the sandbox's engine is production's: the contracts dumped from both are equal to the byte."""
    names = sorted(path.stem for path in (GROUP_DATA / "profiles").glob("*.yaml"))
    workers = {(name, unit.name): unit for name in names for unit in worlds.plan(profile=name).workers}
    verdicts = judged_by_the_engine(host, [list(unit.argv[3:]) for unit in workers.values()])
    assert dict(zip(workers, verdicts, strict=True)) == dict.fromkeys(workers, "taken")


def judged_by_the_engine(host: Host, argvs: list[list[str]]) -> list[str]:
    python = unit(host, "ExecStart")[0].split("path=")[1].split(" ")[0]
    archive = host.run(["readlink", "-f", "/usr/local/bin/sglang-box"]).stdout.strip()
    lines = "".join(json.dumps(argv) + "\n" for argv in argvs)
    done = host.run(["env", "PYTHONPATH=/opt/sandbox/cpu", python, "-c", JUDGE, archive], stdin=lines)
    return done.stdout.splitlines()
