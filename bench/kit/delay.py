"""A slower link to a sandbox host, packet by packet, as a WAN has it.

Kernels without netem exist (those of small virtual machines, for one), so the delay is made by two TUN devices, one
here and one in the host's network namespace, with a thread between them. Handshakes, acknowledgements and data all
wait. The devices vanish with the process that holds them: nothing is left behind, not even by SIGKILL.
"""

import contextlib
import fcntl
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator

from sandbox import network
from sandbox.commands import run
from sandbox.machine import Host

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_LARGEST_PACKET = 65536
_IDLE_S = 0.05


@contextlib.contextmanager
def delayed(host: Host, round_trip_s: float) -> Iterator[None]:
    """Within the block a round trip between this machine and the host takes `round_trip_s` (s) longer."""
    here, there = f"{host.place.tag}near", f"{host.place.tag}far"
    ended = threading.Event()
    with _tun(here) as near, _tun(there) as far:
        _wire(host, here, there)
        thread = threading.Thread(target=_carry, args=({near: far, far: near}, round_trip_s / 2, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def connect_s(host: Host) -> float:
    """Time (s) to open a TCP connection to the host's sshd: one round trip."""
    began = time.monotonic()
    with socket.create_connection((host.address, 22), timeout=10):
        return time.monotonic() - began


@contextlib.contextmanager
def _tun(name: str) -> Iterator[int]:
    handle = os.open("/dev/net/tun", os.O_RDWR)
    try:
        fcntl.ioctl(handle, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
        yield handle
    finally:
        os.close(handle)


def _wire(host: Host, here: str, there: str) -> None:
    """Lead the way there and the way back through the devices, for these two addresses alone."""
    namespace = host.place.outer_name(host.name)
    gateway = f"{host.place.network}.{network.GATEWAY}"
    run("ip", "link", "set", here, "up")
    run("ip", "link", "set", there, "netns", namespace)
    run("ip", "-netns", namespace, "link", "set", there, "up")
    run("ip", "route", "add", f"{host.address}/32", "dev", here, "src", gateway)
    run("ip", "-netns", namespace, "route", "add", f"{gateway}/32", "dev", there, "src", host.address)


def _carry(ways: dict[int, int], delay_s: float, ended: threading.Event) -> None:
    """Write each packet to the other end, `delay_s` after it came."""
    waiting: deque[tuple[float, int, bytes]] = deque()
    while not ended.is_set():
        pause = waiting[0][0] - time.monotonic() if waiting else _IDLE_S
        for end in select.select(list(ways), [], [], min(max(pause, 0), _IDLE_S))[0]:
            waiting.append((time.monotonic() + delay_s, ways[end], os.read(end, _LARGEST_PACKET)))
        while waiting and waiting[0][0] <= time.monotonic():
            _, end, packet = waiting.popleft()
            with contextlib.suppress(OSError):  # the other end is down: a lost packet
                os.write(end, packet)
