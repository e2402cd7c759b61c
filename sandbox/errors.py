"""What can go wrong with a sandbox, each with the remedy in its message."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar


class SandboxError(Exception):
    """Anything the sandbox refuses or cannot do; the message is complete and names the next step."""

    exit_code: ClassVar[int] = 1


class NotRoot(SandboxError):
    """Namespaces, mounts and network devices need root."""

    exit_code = 2

    def __init__(self) -> None:
        super().__init__("the sandbox needs root: run it with sudo, for example: sudo python3 -m sandbox up")


class MissingCommands(SandboxError):
    """A program the sandbox is made of is not installed."""

    exit_code = 2

    def __init__(self, commands: Sequence[str], packages: Sequence[str]) -> None:
        super().__init__(
            f"not installed: {', '.join(commands)} (package {', '.join(packages)}): "
            "run `python3 -m sandbox deps --install`"
        )


class BadRequest(SandboxError):
    """The command line or a call asks for something that cannot be meant."""

    exit_code = 2


class CommandFailed(SandboxError):
    """A helper program ended with an error."""

    def __init__(self, argv: Sequence[str], code: int, stderr: str) -> None:
        said = stderr.strip() or "it printed nothing"
        super().__init__(f"`{' '.join(argv)}` ended with {code}: {said}")


class NoDebianMirror(SandboxError):
    """No Debian mirror that could serve the base tree is known to apt here."""

    exit_code = 2

    def __init__(self) -> None:
        super().__init__("apt here names no Debian mirror: set SANDBOX_MIRROR to the URL of one")


class BaseTreeFailed(SandboxError):
    """mmdebstrap could not build the base tree."""

    def __init__(self, log: Path) -> None:
        super().__init__(f"the base tree could not be built; end of {log}:\n{tail(log)}")


class HostDidNotBoot(SandboxError):
    """The machine ended, or its sshd did not answer in time."""

    def __init__(self, host: str, what: str, log: Path) -> None:
        super().__init__(f"{host} {what}; end of {log}:\n{tail(log)}")


class HubDidNotStart(SandboxError):
    """The sandbox's model hub does not run."""

    def __init__(self, log: Path) -> None:
        super().__init__(f"the model hub does not run: `python3 -m sandbox up` starts it; end of {log}:\n{tail(log)}")


class HostNotRunning(SandboxError):
    """The host must run for this command."""

    def __init__(self, host: str) -> None:
        super().__init__(f"{host} is not running: start it with `python3 -m sandbox up {host}`")


class NothingToBoot(SandboxError):
    """There is no disk to boot from: the host never ran, or its base tree has been replaced."""

    def __init__(self, host: str) -> None:
        super().__init__(f"{host} has no disk to boot from: `python3 -m sandbox up {host}` makes a fresh one")


class SubnetTaken(SandboxError):
    """Another network already uses the addresses this sandbox would take."""

    exit_code = 2

    def __init__(self, subnet: str, device: str) -> None:
        super().__init__(f"{subnet} is already routed to {device}: use another SANDBOX_DIR, it chooses the subnet")


def tail(log: Path, lines: int = 15) -> str:
    """Return the last `lines` lines of a log, indented, or a remark that there are none."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:]) or "    (empty)"
