"""The network of a sandbox: a bridge, a network namespace and a veth pair a host, and address translation.

Each host has a loopback of its own: all may serve on the same port, and none is reached from outside.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from sandbox.commands import run, succeeds
from sandbox.errors import SubnetTaken
from sandbox.place import Place

NAMESPACES = Path("/run/netns")
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
# Forwarding is one switch of the whole machine, while there may be several sandboxes: they register here,
# and the last one to leave puts the switch back.
REGISTER = Path("/run/sglang-sandbox")
GATEWAY = 254
HUB, HUB_CDN = 253, 252  # clients tell a hub from its CDN by the host


def address(place: Place, index: int) -> str:
    """Return the IPv4 address of the host with that number (1..250)."""
    return f"{place.network}.{index}"


def hub_addresses(place: Place) -> tuple[str, str]:
    """Return the IPv4 addresses of the model hub and of its CDN, on the bridge."""
    return address(place, HUB), address(place, HUB_CDN)


def namespace(place: Place, host: str) -> Path:
    """Return the file that names a host's network namespace."""
    return NAMESPACES / place.outer_name(host)


def open_bridge(place: Place) -> None:
    """Make the bridge and the way out, unless they are there already. Raises SubnetTaken."""
    if succeeds("ip", "link", "show", place.tag):
        return
    _refuse_taken_subnet(place)
    run("ip", "link", "add", place.tag, "type", "bridge")
    run("ip", "address", "add", f"{place.network}.{GATEWAY}/24", "dev", place.tag)
    for own in hub_addresses(place):
        run("ip", "address", "add", f"{own}/24", "dev", place.tag)
    run("ip", "link", "set", place.tag, "up")
    run("nft", "-f", "-", stdin=_translation(place))
    _forward(place)


def close_bridge(place: Place) -> None:
    """Take away the bridge and its rules, and restore forwarding; what is gone already is no error."""
    succeeds("ip", "link", "delete", place.tag)
    succeeds("nft", "delete", "table", "ip", place.tag)
    _stop_forwarding(place)
    # `ip netns add` makes this folder a mount of itself; the last one to leave takes it away again.
    if NAMESPACES.is_dir() and not any(NAMESPACES.iterdir()):
        succeeds("umount", str(NAMESPACES))


def attach(place: Place, host: str, index: int) -> None:
    """Give a host its network namespace, wired to the bridge."""
    name = place.outer_name(host)
    run("ip", "netns", "add", name)
    # A fixed hardware address: after a reset the neighbours' caches would point at the old one for a minute.
    hardware = ":".join(["02", *(f"{octet:02x}" for octet in place.digest[:3]), "00", f"{index:02x}"])
    peer = ("peer", "name", "host0", "address", hardware, "netns", name)
    run("ip", "link", "add", device(place, index), "type", "veth", *peer)
    run("ip", "link", "set", device(place, index), "master", place.tag, "up")
    setup = [
        f"address add {address(place, index)}/24 dev host0",
        "link set lo up",
        "link set host0 up",
        f"route add default via {place.network}.{GATEWAY}",
    ]
    run("ip", "-netns", name, "-batch", "-", stdin="\n".join(setup) + "\n")


def detach(place: Place, host: str, index: int) -> None:
    """Take a host's namespace and veth pair away; what is gone already is no error."""
    # By name and first: the veth of a dead namespace goes away late, and would be in the way of the next one.
    succeeds("ip", "link", "delete", device(place, index))
    succeeds("ip", "netns", "delete", place.outer_name(host))


def device(place: Place, index: int) -> str:
    """Return the outer end of a host's cable; set down, it cuts the host off."""
    return f"{place.tag}v{index}"


def _translation(place: Place) -> str:
    subnet = f"{place.network}.0/24"
    rule = f"ip saddr {subnet} ip daddr != {subnet} masquerade"
    return f"table ip {place.tag} {{ chain out {{ type nat hook postrouting priority srcnat; {rule}; }}; }}\n"


def _refuse_taken_subnet(place: Place) -> None:
    subnet = f"{place.network}.0/24"
    for route in json.loads(run("ip", "-json", "-4", "route", "show", "root", subnet) or "[]"):
        raise SubnetTaken(subnet, str(route.get("dev", "another route")))


@contextlib.contextmanager
def _register() -> Iterator[Path]:
    """Hold the register's lock: on the parent folder, as a lock file could never be removed safely."""
    handle = os.open(REGISTER.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield REGISTER
    finally:
        os.close(handle)


def _forward(place: Place) -> None:
    with _register() as register:
        if not register.exists():
            register.mkdir()
            (register / "was").write_text(FORWARDING.read_text())
        (register / place.tag).touch()
        FORWARDING.write_text("1")


def _stop_forwarding(place: Place) -> None:
    with _register() as register:
        (register / place.tag).unlink(missing_ok=True)
        if register.exists() and {entry.name for entry in register.iterdir()} == {"was"}:
            FORWARDING.write_text((register / "was").read_text())
            (register / "was").unlink()
            register.rmdir()
