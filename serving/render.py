"""Renders templates/: what a host's files will hold."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"


def systemd_word(word: str) -> str:
    """One word of ExecStart=: `%` and `$` are systemd's own, quotes keep JSON and spaces together."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = escaped == word and word and not any(char in word for char in " \t'{};")
    return word if plain else f'"{escaped}"'


def options(argv: tuple[str, ...]) -> list[str]:
    """The argv as lines to read: each option with its values."""
    lines: list[str] = []
    for word in map(systemd_word, argv):
        starts_line = word.startswith("--") or not lines
        lines = [*lines, word] if starts_line else [*lines[:-1], f"{lines[-1]} {word}"]
    return lines


def after(words: tuple[str, ...]) -> str:
    """Words that follow others on a line."""
    return "".join(f" {word}" for word in words)


@cache
def _environment() -> Environment:
    """One for all: it keeps the compiled templates, which are the same for every host."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 (unit files, not HTML)
    )
    environment.filters["options"] = options
    environment.filters["after"] = after
    return environment


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)
