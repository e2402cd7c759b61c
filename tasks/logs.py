"""The last lines of the units' journals, as `sglang-box logs` on each host gives them, on standard output."""

import shlex

from pyinfra import host
from pyinfra.api import FactBase

from serving.paths import CONSOLE_COMMAND
from serving.problems import Problem, Refused
from serving.site import LogOptions, load_options
from tasks.plan import refuse


class Logs(FactBase[tuple[int, list[str]]]):
    """Exit status and output of `sglang-box logs`."""

    def command(self, words: list[str]) -> str:
        return f"{shlex.join([CONSOLE_COMMAND, 'logs', *words])} 2>&1; echo $?"

    def process(self, output: list[str]) -> tuple[int, list[str]]:
        return int(output[-1]), output[:-1]


def show() -> None:
    """Print the lines of this host, each with its name; one that has none to show counts as failed."""
    try:
        lines = _lines(load_options(LogOptions, host.data.dict()))
    except Refused as refusal:
        refuse(refusal)
        return
    print("\n".join(f"[{host.name}] {line}" for line in lines), flush=True)


def _lines(options: LogOptions) -> list[str]:
    """Raises Refused where the host's own `sglang-box` refuses, or where it has none."""
    asked = {"lines": options.lines, "unit": options.unit, "since": options.since}
    words = [f"--{name}={value}" for name, value in asked.items() if value is not None]
    status, lines = host.get_fact(Logs, words=words)
    if status != 0:
        remedy = "`sglang-box logs --help` there says what it takes; deploy.py puts it onto a host that has none"
        raise Refused([Problem(host.name, "logs", lines[-1] if lines else f"exit status {status}", remedy)])
    return list(lines)
