"""The base tree: Debian 12 with systemd 252, sshd and Python 3.11, below every host's own changes.

It is built once, is never written to again, and is named by the digest of its recipe: a changed recipe makes
another tree, so that a running host never has its floor pulled away.
"""

from __future__ import annotations

import fcntl
import hashlib
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from sandbox import registries
from sandbox.commands import Say, run
from sandbox.errors import BaseTreeFailed
from sandbox.place import cache_folder, locked

SUITE = "bookworm"
PACKAGES = (
    "systemd-sysv",
    "dbus",
    "libpam-systemd",
    "openssh-server",
    "sudo",
    "python3",
    "python3-venv",
    "ca-certificates",
    "iproute2",
    "curl",
    "procps",
)
# Documentation is a third of the tree; a GPU host's playbook reads none of it.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
SETTLE = Path(__file__).with_name("base-tree.sh")
UNUSED_S = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Recipe:
    """Everything the content of a base tree depends on."""

    sources: tuple[str, ...]
    apt_options: tuple[Path, ...]
    authorities: tuple[Path, ...]

    @classmethod
    def of_this_machine(cls) -> Recipe:
        """Take mirror, options and certificates from the outer machine. Raises NoDebianMirror."""
        return cls(registries.apt_sources(SUITE), registries.apt_options(), registries.authorities())

    @property
    def digest(self) -> str:
        """Digest over everything in it, files by their content."""
        summary = hashlib.sha256("\n".join([*self.sources, *PACKAGES, *LEFT_OUT]).encode())
        for path in (SETTLE, *self.apt_options, *self.authorities):
            summary.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return summary.hexdigest()[:12]

    def command(self, target: Path) -> list[str]:
        """Return the mmdebstrap command that builds it."""
        argv = ["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
        # A file given here governs this run's apt and stays in the tree's own configuration.
        argv += [f"--aptopt={path}" for path in self.apt_options]
        argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
        if self.authorities:
            files = shlex.join(map(str, self.authorities))
            argv += [f"--customize-hook=copy-in {files} {registries.AUTHORITIES}"]
        argv += [f'--customize-hook=sh {shlex.quote(str(SETTLE))} "$1"']
        return [*argv, SUITE, str(target), *self.sources]


def ensure(say: Say) -> Path:
    """Return the base tree for today's recipe, building it first when absent (about 30 s)."""
    recipe = Recipe.of_this_machine()
    cache = cache_folder()
    tree = cache / f"{SUITE}-{recipe.digest}"
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "lock"):
        if not is_complete(tree):
            _build(recipe, tree, say)
        (tree / ".complete").touch()
        _drop_unused(cache, tree)
    return tree


def is_complete(tree: Path) -> bool:
    """Tell whether the tree was finished, for the recipe in its name."""
    stamp = tree / ".complete"
    return stamp.exists() and tree.name == f"{SUITE}-{stamp.read_text()}"


def root_of(tree: Path) -> Path:
    """Return the file system inside the tree's folder; the stamp lies beside it, where no host sees it."""
    return tree / "root"


def _build(recipe: Recipe, tree: Path, say: Say) -> None:
    started = time.monotonic()
    partial, log = tree.with_suffix(".partial"), tree.with_suffix(".log")
    for leftover in (partial, tree):
        shutil.rmtree(leftover, ignore_errors=True)
    partial.mkdir()
    say(f"building the base tree ({SUITE}, once, about 30 s)")
    _bootstrap(recipe.command(root_of(partial)), log, say)
    (partial / ".complete").write_text(recipe.digest)
    partial.rename(tree)
    size = run("du", "-sm", str(tree)).split()[0]
    say(f"base tree built in {time.monotonic() - started:.0f} s: {tree}, {size} MB")


def _bootstrap(command: list[str], log: Path, say: Say) -> None:
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None  # asked for one line above
    with log.open("w") as copy:
        _follow(process.stderr, copy.write, say)
    if process.wait():
        raise BaseTreeFailed(log)


def _follow(lines: Iterable[str], record: Callable[[str], object], say: Say) -> None:
    started = time.monotonic()
    for line in lines:
        record(line)
        # mmdebstrap marks its own steps so; what apt and dpkg print is for the log alone.
        if line.startswith("I: ") and line.rstrip().endswith("..."):
            say(f"  {time.monotonic() - started:4.0f} s  {line[3:].strip()}")


def _drop_unused(cache: Path, current: Path) -> None:
    for tree in cache.glob(f"{SUITE}-*/"):
        stamp = tree / ".complete"
        old = not stamp.exists() or time.time() - stamp.stat().st_mtime > UNUSED_S
        if tree.is_dir() and tree != current and old and not _in_use(stamp):
            shutil.rmtree(tree)


def _in_use(stamp: Path) -> bool:
    """Tell whether a machine runs on the tree: its supervisor holds a shared lock on the stamp."""
    if not stamp.exists():
        return False
    with stamp.open() as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
