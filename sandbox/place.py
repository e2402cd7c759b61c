"""Where one sandbox keeps its state, and the names it may use on the outer machine.

Bridge, subnet, network namespaces and cgroups carry a tag made from the state folder, so that two sandboxes
(a demonstration and a test run, say) live side by side without knowing of each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import BadRequest

DEFAULT_STATE = "/var/tmp/sglang-sandbox"
DEFAULT_CACHE = "/var/tmp/sglang-sandbox-cache"
HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True)
class Place:
    """One state folder; everything else follows from its path."""

    root: Path

    @classmethod
    def current(cls) -> Place:
        """Return the place named by SANDBOX_DIR, or the usual one. Raises BadRequest."""
        root = Path(os.environ.get("SANDBOX_DIR") or DEFAULT_STATE).resolve()
        if set(str(root)) & set(":,\\"):
            raise BadRequest(f"SANDBOX_DIR {root}: an overlay cannot have a path with one of : , \\ in it")
        return cls(root)

    @property
    def digest(self) -> bytes:
        """Digest of the state folder's path, from which names and addresses are taken."""
        return hashlib.sha256(os.fsencode(self.root)).digest()

    @property
    def tag(self) -> str:
        """Prefix of every name on the outer machine: 8 characters, as an interface name holds at most 15."""
        return f"sb{self.digest[:3].hex()}"

    @property
    def network(self) -> str:
        """First three octets of the /24 of this sandbox, within 10.64.0.0/10."""
        return f"10.{64 + self.digest[3] % 64}.{self.digest[4]}"

    def outer_name(self, host: str) -> str:
        """Name of a host's network namespace, cgroup and nspawn machine on the outer machine."""
        return f"{self.tag}-{host}"

    def host_folder(self, host: str) -> Path:
        """Return the folder of a host: record, disk, process id. Raises BadRequest for a bad name."""
        if not HOST_NAME.fullmatch(host):
            raise BadRequest(f"{host!r} is no host name: use lower-case letters, digits and dashes")
        return self.root / "hosts" / host

    def known_hosts(self) -> list[str]:
        """Return the names of all hosts that have a folder, running or not."""
        folder = self.root / "hosts"
        return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    @property
    def layers(self) -> Path:
        """Folder of kept layers: SANDBOX_LAYERS, for sandboxes that share what they installed, or one of its own."""
        return Path(os.environ.get("SANDBOX_LAYERS") or self.root / "layers").resolve()

    def worker(self, name: str) -> Place:
        """Return the place of one of several workers who share this one: hosts and addresses of its own."""
        return Place(self.root / "workers" / name)

    def workers(self) -> list[Place]:
        """Return the places of all workers, at work or not."""
        folder = self.root / "workers"
        return [self.worker(entry.name) for entry in sorted(folder.iterdir())] if folder.is_dir() else []

    def log_of(self, name: str) -> Path:
        """Return the log of a machine's console."""
        return self.root / "log" / f"{name}.log"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the sandbox's lock: of two `up` at a time the second waits, then finds the host running."""
        # For root only: it holds keys, and programs with the set-user-id bit.
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(self.root / "lock"):
            yield


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, made when absent, for the length of the block."""
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def replace(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new one, never a part."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.rename(path)


def cache_folder() -> Path:
    """Return the folder of base trees, which hold nothing secret and are shared by all state folders."""
    return Path(os.environ.get("SANDBOX_CACHE") or DEFAULT_CACHE).resolve()
