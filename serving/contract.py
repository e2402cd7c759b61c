"""The engine contract: which arguments a pinned engine's own parser takes, and the argv that it is given.

The flags are data (group_data/engines/contracts/), dumped from the installed release by hostkit/engine_parser.py.
Names are SGLang's with underscores for dashes. An alias or abbreviation that the parser takes without doubt
becomes its full name; what is ambiguous or unknown is refused with the names to choose from.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from serving.problems import Problem, Refused, nearest

Value = str | int | float | bool | list[Any] | dict[str, Any]


@dataclass(frozen=True)
class Flag:
    """One option of the engine's parser, as argparse knows it."""

    flags: tuple[str, ...]
    dest: str
    action: str
    type: str | None
    nargs: str | int | None
    choices: tuple[str, ...] | None
    deprecated: bool

    @property
    def is_switch(self) -> bool:
        """An option without a value of its own."""
        return self.nargs == 0

    @property
    def option(self) -> str:
        """The spelling that argv uses: the one equal to the name where there is one."""
        dashed = "--" + self.dest.replace("_", "-")
        return dashed if dashed in self.flags else self.flags[0]

    @property
    def name(self) -> str:
        return self.option.removeprefix("--").replace("-", "_")


@dataclass(frozen=True)
class Contract:
    """The arguments that one release of a package takes."""

    package: str
    version: str
    flags: tuple[Flag, ...]

    @classmethod
    def load(cls, path: Path) -> "Contract":
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(data["package"], data["version"], tuple(_flag(one) for one in data["flags"]))

    @cached_property
    def _by_option(self) -> dict[str, Flag]:
        return {option: flag for flag in self.flags for option in flag.flags}

    def find(self, name: str, where: str, under: str = "arguments") -> Flag:
        """The flag that `name` means to argparse. Raises Refused where argparse would not be certain.

        `under` is the key of the mapping in the file `where` that holds the name.
        """
        option = "--" + name.replace("_", "-")
        if option in self._by_option:
            return self._by_option[option]
        matches = {flag for known, flag in self._by_option.items() if known.startswith(option)}
        if len(matches) == 1:
            return matches.pop()
        key = f"{under}.{name}"
        if matches:
            names = " or ".join(sorted(flag.name for flag in matches))
            raise Refused([Problem(where, key, f"is ambiguous in {self.package} {self.version}", f"write {names}")])
        known = {flag.name for flag in self.flags}
        raise Refused([Problem(where, key, f"is unknown to {self.package} {self.version}", nearest(name, known))])

    def resolve(self, arguments: Mapping[str, Value], where: str, under: str = "arguments") -> "Resolved":
        """Full names and checked values. Raises Refused with every problem of the mapping."""
        problems: list[Problem] = []
        values: dict[str, Value] = {}
        notes: list[str] = []
        for name, value in arguments.items():
            try:
                flag = self.find(name, where, under)
            except Refused as refusal:
                problems += refusal.problems
                continue
            if flag.name in values:
                problems.append(
                    Problem(where, f"{under}.{name}", f"means {flag.name}, given twice", "keep one of them")
                )
            if flag.name != name:
                notes.append(f"{name} is taken as {flag.name}")
            if flag.deprecated:
                notes.append(f"{flag.name} is deprecated in {self.package} {self.version}")
            problems += _value_problems(flag, value, where, under)
            values[flag.name] = value
        if problems:
            raise Refused(problems)
        return Resolved(values, tuple(notes))

    def by_dest(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The values as the running server reports them: by argparse's dest, one value of many as a list."""
        flags = {flag.name: flag for flag in self.flags}
        return {flags[name].dest: _as_reported(flags[name], value) for name, value in values.items()}

    def argv(self, values: Mapping[str, Value]) -> list[str]:
        """The options in alphabetical order: the order of keys in a profile never matters."""
        return [part for flag in self.flags if flag.name in values for part in _words(flag, values[flag.name])]


@dataclass(frozen=True)
class Resolved:
    """Arguments by full name, and what an operator should know about how they were read."""

    values: Mapping[str, Value]
    notes: tuple[str, ...]


def _flag(data: dict[str, Any]) -> Flag:
    choices = data["choices"]
    return Flag(
        flags=tuple(data["flags"]),
        dest=data["dest"],
        action=data["action"],
        type=data["type"],
        nargs=data["nargs"],
        choices=tuple(str(choice) for choice in choices) if choices else None,
        deprecated=data["deprecated"],
    )


def _value_problems(flag: Flag, value: Value, where: str, under: str) -> list[Problem]:
    key = f"{under}.{flag.name}"
    if flag.is_switch:
        return (
            []
            if isinstance(value, bool)
            else [Problem(where, key, f"is a switch, not {value!r}", "write true or false")]
        )
    if isinstance(value, bool):
        return [Problem(where, key, f"takes a value, not {value!r}", "write the value, in quotes if it is a word")]
    if isinstance(value, list) and flag.nargs not in ("+", "*"):
        return [Problem(where, key, "takes one value, not a list", "write one value")]
    items = value if isinstance(value, list) else [value]
    return [problem for item in items for problem in _item_problems(flag, item, where, key)]


def _item_problems(flag: Flag, item: Any, where: str, key: str) -> list[Problem]:
    if flag.choices and str(item) not in flag.choices:
        return [Problem(where, key, f"{item!r} is no choice", nearest(str(item), flag.choices))]
    if flag.type == "int" and not isinstance(item, int):
        return [Problem(where, key, f"takes a whole number, not {item!r}", "write digits without quotes")]
    if flag.type == "float" and not isinstance(item, int | float):
        return [Problem(where, key, f"takes a number, not {item!r}", "write digits without quotes")]
    return []


def _as_reported(flag: Flag, value: Value) -> Value:
    return [value] if flag.nargs in ("+", "*") and not isinstance(value, list) else value


def _words(flag: Flag, value: Value) -> list[str]:
    if isinstance(value, bool):
        return _switch_words(flag, value)
    if isinstance(value, list):
        return [flag.option, *map(str, value)]
    return [flag.option, json.dumps(value, sort_keys=True) if isinstance(value, dict) else str(value)]


def _switch_words(flag: Flag, on: bool) -> list[str]:
    if on:
        return [flag.option]
    negative = [option for option in flag.flags if option.startswith("--no-")]
    return negative[:1] if flag.action == "BooleanOptionalAction" else []
