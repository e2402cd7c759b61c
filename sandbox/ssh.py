"""SSH to the hosts: keys of the sandbox's own, and an ssh_config that reaches them over the sandbox's bridge.

The bridge leads nowhere but to the hosts' own network namespaces. No ProxyCommand: paramiko writes to its pipe
without looking whether all was taken, and under gevent an upload of some 200 KB then waits for ever.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox.commands import run
from sandbox.place import Place, replace


def client_key(place: Place) -> Path:
    """Return the private key that logs in as root and as admin."""
    return place.root / "keys" / "client"


def host_key(place: Place) -> Path:
    """Return the private key that all hosts of this sandbox share, so that a reset changes no known_hosts."""
    return place.root / "keys" / "host"


def config(place: Place) -> Path:
    """Return the ssh_config that reaches every host by name."""
    return place.root / "ssh_config"


def known_hosts(place: Place) -> Path:
    """Return the known_hosts that goes with it."""
    return place.root / "known_hosts"


def public(key: Path) -> str:
    """Return the public half of a key: type and text, without the comment."""
    return " ".join(key.with_suffix(".pub").read_text().split()[:2])


def make_keys(place: Place) -> None:
    """Make both keys unless they exist."""
    for key in (client_key(place), host_key(place)):
        key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not key.exists():
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", place.tag, "-f", str(key))


def write_config(place: Place, addresses: Mapping[str, str]) -> None:
    """Write ssh_config and known_hosts for hosts by name, each replaced as a whole."""
    key = public(host_key(place))
    replace(config(place), "\n".join(host_block(place, *host) for host in addresses.items()))
    replace(known_hosts(place), "".join(f"{name},{address} {key}\n" for name, address in addresses.items()))


def host_block(place: Place, host: str, address: str) -> str:
    """Return the lines of ssh_config for one host."""
    lines = [
        f"Host {host}",
        f"HostName {address}",
        "User root",
        f"IdentityFile {client_key(place)}",
        "IdentitiesOnly yes",
        f"UserKnownHostsFile {known_hosts(place)}",
        "StrictHostKeyChecking yes",
        "ConnectTimeout 10",
        "LogLevel ERROR",
    ]
    return "\n  ".join(lines) + "\n"


def command(place: Place, host: str, argv: Sequence[str], *, user: str = "root") -> list[str]:
    """Return the local command that runs `argv` on the host, quoted; without `argv`, a login shell."""
    remote = [shlex.join(argv)] if argv else []
    return ["ssh", "-F", str(config(place)), "-o", "BatchMode=yes", "-l", user, host, *remote]
