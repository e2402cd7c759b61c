"""Shows a profile whole: with what it extends, and what each unit becomes of it on a host with eight cards.

make profile NAME=pd
"""

import argparse
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from serving import combinations
from serving.example_host import eight_cards
from serving.plan import GROUP_DATA, Plan, load_wanted, make_plan
from serving.problems import Refused
from serving.profile import merged
from serving.render import options
from serving.site import Site
from serving.unit import Unit


def shown(name: str, group_data: Path = GROUP_DATA) -> str:
    """The text. Raises Refused."""
    site = Site(profile=name, models="/srv/models", listen="127.0.0.1", port=30000, restart="allow")
    plan = make_plan(load_wanted(site, group_data), eight_cards())
    whole = yaml.safe_dump(merged(group_data / "profiles", name), sort_keys=False, allow_unicode=True, width=110)
    return "\n".join([f"# {name}, with what it extends", whole, *_notes(plan), *map(_unit, plan.units)])


def _notes(plan: Plan) -> Iterator[str]:
    for text in (*plan.notes, *map(str, combinations.problems(plan.wanted))):
        yield f"# note: {text}"


def _unit(unit: Unit) -> str:
    cards = f" on GPU {','.join(str(gpu.index) for gpu in unit.gpus)}" if unit.gpus else ""
    variables = [f"{name}={value}" for name, value in sorted(unit.environment.items())]
    argv = " \\\n    ".join(options(unit.argv))
    return f"\n# {unit.name}{cards}, {unit.address}:{unit.port}\n{shlex.join(variables)}\n{argv}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a file of group_data/profiles/, without .yaml")
    try:
        print(shown(parser.parse_args().name))
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
