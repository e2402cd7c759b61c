"""Run helper programs without a terminal, and know which ones the sandbox is made of."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from sandbox.errors import CommandFailed, MissingCommands, NotRoot

Say = Callable[[str], None]

# Debian's package for each program, so that a message can name what to install.
PACKAGE_OF = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "nft": "nftables",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "unshare": "util-linux",
    "setsid": "util-linux",
}
# mmdebstrap checks the archive's signature with this keyring; it brings no command of its own.
EXTRA_PACKAGES = ("debian-archive-keyring",)


def run(*argv: str, stdin: str | None = None) -> str:
    """Run a program to its end and return what it printed. Raises CommandFailed with its error output."""
    done = subprocess.run(argv, input=stdin or "", capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandFailed(argv, done.returncode, done.stderr)
    return done.stdout


def succeeds(*argv: str) -> bool:
    """Run a program for its exit status only; a missing program is a failure too."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


def missing() -> list[str]:
    """Return the needed programs that are not on PATH."""
    return [command for command in PACKAGE_OF if shutil.which(command) is None]


def keyring_is_there() -> bool:
    """Whether mmdebstrap can check the archive's signature."""
    return any(Path("/usr/share/keyrings").glob("debian-archive-keyring.*"))


def require_root() -> None:
    """Raise NotRoot unless the effective user is root."""
    if os.geteuid() != 0:
        raise NotRoot


def require_commands() -> None:
    """Raise MissingCommands, naming packages, unless every needed program is there."""
    absent = missing()
    if absent:
        raise MissingCommands(absent, sorted({PACKAGE_OF[command] for command in absent}))


def install_packages() -> None:
    """Install what is missing with apt, showing apt's own output. Raises CommandFailed, NotRoot."""
    if not missing() and keyring_is_there():
        return
    require_root()
    packages = sorted({*PACKAGE_OF.values(), *EXTRA_PACKAGES})
    _apt("update", "-q")
    _apt("install", "-q", "-y", "--no-install-recommends", *packages)


def _apt(*arguments: str) -> None:
    argv = ("apt-get", *arguments)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=environment, check=False)
    if done.returncode:
        raise CommandFailed(argv, done.returncode, "see the output above")
