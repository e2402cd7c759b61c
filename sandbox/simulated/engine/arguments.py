"""The command line, parsed by the same flags as the real engine has: they are read from its contract."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

CONTRACT = Path(__file__).resolve().parents[1] / "contract.json"
SWITCHES = ("_StoreTrueAction", "DeprecatedStoreTrueAction")


def parse(argv: Sequence[str]) -> dict[str, Any]:
    """Return the arguments by dest. Ends the process with status 2 where the real parser does."""
    given = vars(parser().parse_args(_with_config_file(argv)))
    given["launch_command"] = " ".join(argv)
    return given


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="sglang serve")
    for flag in json.loads(CONTRACT.read_text())["flags"]:
        made.add_argument(*_names(flag), **_options(flag))
    return made


def human_readable_int(text: str) -> int:
    """Read 4096, 4k (thousands) or 4Ki (1024s)."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kMGT])|(\d+)([KMGT])i|(\d+)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"Invalid integer value: {text!r}")
    decimal, si, whole, iec, plain = found.groups()
    if plain:
        return int(plain)
    return int(float(decimal) * 1000 ** ("kMGT".index(si) + 1)) if si else int(whole) * 1024 ** ("KMGT".index(iec) + 1)


TYPES: dict[str | None, Callable[[str], Any]] = {
    None: str,
    "str": str,
    "int": int,
    "float": float,
    "human_readable_int": human_readable_int,
    "loads": json.loads,
    "json_list_type": json.loads,
    "nullable_str": lambda text: None if text in ("None", "") else text,
    "parse_cuda_graph_backend_arg": str.lower,
    "parse_cuda_graph_config_arg": json.loads,
}


def _names(flag: Mapping[str, Any]) -> list[str]:
    """Without the `--no-` forms of a BooleanOptionalAction, which adds them itself."""
    names: list[str] = flag["flags"]
    if flag["action"] == "BooleanOptionalAction":
        return [name for name in names if not name.startswith("--no-")]
    return names


def _options(flag: Mapping[str, Any]) -> dict[str, Any]:
    common = {"dest": flag["dest"], "default": flag["default"], "required": flag["required"]}
    if flag["action"] in SWITCHES:
        return {**common, "action": "store_true"}
    if flag["action"] == "BooleanOptionalAction":
        return {**common, "action": argparse.BooleanOptionalAction}
    return {**common, "type": TYPES[flag["type"]], "nargs": flag["nargs"], "choices": flag["choices"]}


def _with_config_file(argv: Sequence[str]) -> list[str]:
    """Replace `--config FILE` by what the file says, before everything else, as the real engine does."""
    words = list(argv)
    if "--config" not in words:
        return words
    at = words.index("--config")
    text = Path(words[at + 1]).read_text()
    return _from_yaml(text) + words[:at] + words[at + 2 :]


def _from_yaml(text: str) -> list[str]:
    """Read `key: value` lines, all that the playbook writes; values are plain or JSON."""
    words: list[str] = []
    for key, value in re.findall(r"^([\w-]+):[ \t]*(.*?)[ \t]*$", text, re.MULTILINE):
        plain = json.loads(value) if value.startswith('"') else value
        words += [f"--{key.replace('_', '-')}"] + ([] if plain == "true" else [str(plain)])
    return words
