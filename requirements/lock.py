"""Compile every .in file of the project into the hash lock beside it, and tell which packages changed.

    python requirements/lock.py                     keep each version that the .in file still allows
    python requirements/lock.py --upgrade           take the newest versions
    python requirements/lock.py --upgrade pydantic  take the newest version of this package only
    python requirements/lock.py --check             write nothing; exit 1 if a lock would differ, 2 if unknown

Beside NAME.in may lie NAME.overrides (versions put in place of those that packages ask for) and NAME.excludes
(packages left out). The work is done on copies in an empty folder: no path of this computer gets into a lock.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from argparse import RawDescriptionHelpFormatter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTROLLER = Path("requirements")
ENGINES = Path("group_data/engines")
BENCH = Path("bench")

# Where a lock is to be installed decides how it is resolved.
OPTIONS = {
    # Any computer, any Python from 3.11 on.
    CONTROLLER: ("--universal", "--python-version=3.11"),
    # The same computer: what a benchmark compares with.
    BENCH: ("--universal", "--python-version=3.11"),
    # GPU hosts. What is resolved for Python 3.11 installs on 3.12 as well, not always the other way round.
    # Wheels only: nothing is compiled on a host, and no package's build script runs there.
    ENGINES: ("--python-version=3.11", "--python-platform=x86_64-manylinux_2_34", "--only-binary=:all:"),
}
# A lock that takes its versions from another lock, except for what its own overrides name.
FOLLOWS = {ENGINES / "sandbox-light.lock": ENGINES / "sglang-0.5.23.lock"}
COMMON_OPTIONS = (
    "--quiet",
    "--generate-hashes",
    "--annotation-style=line",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--custom-compile-command=python requirements/lock.py",
)
PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[\w,.-]*\])?==([^\s;]+)", re.MULTILINE)


class LockError(Exception):
    """A lock cannot be compiled; the message says why."""


def main(argv: list[str]) -> int:
    options = _arguments().parse_args(argv)
    uv = find_uv()
    stale = False
    with tempfile.TemporaryDirectory(prefix="lock-") as name:
        scratch = Path(name)
        copy_inputs(scratch)
        for lock in locks():
            compile_lock(uv, scratch, lock, options.upgrade)
            lines = changes(_text(ROOT / lock), _text(scratch / lock))
            print(f"{lock}: {'changed' if lines else 'as it is'}", *lines, sep="\n  ")
            stale = stale or bool(lines)
            if lines and not options.check:
                shutil.copyfile(scratch / lock, ROOT / lock)
    return 1 if options.check and stale else 0


def find_uv() -> str:
    """The pinned uv: that of the project's own environment, or the one on PATH. Raises LockError.

    Another one may resolve to something else: below 0.12 it took SGLang 0.5.9 where a newer one was asked for, since
    those need packages that have pre-releases only (sglang's installation page; sglang #18392).
    """
    remedy = "pip install -r requirements/dev.lock brings it"
    found = shutil.which("uv", path=ROOT / ".venv/bin") or shutil.which("uv")
    if not found:
        raise LockError(f"uv is not here: {remedy}")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    wanted = pins(_text(ROOT / ENGINES / "uv.requirements.in"))["uv"]
    if version != wanted:
        raise LockError(f"{found} is uv {version}, the locks are made with {wanted}: {remedy}")
    return found


def locks() -> list[Path]:
    """Every lock of the project: those that others build on come first."""
    found = [
        source.relative_to(ROOT).with_suffix(".lock")
        for folder in OPTIONS
        for source in sorted((ROOT / folder).glob("*.in"))
    ]
    return sorted(found, key=lambda lock: lock in FOLLOWS)  # stable, and controller sorts before dev


def copy_inputs(scratch: Path) -> None:
    """All that uv reads. The present locks are part of it: uv keeps the versions that they name."""
    for folder in OPTIONS:
        (scratch / folder).mkdir(parents=True)
        for suffix in ("in", "lock", "overrides", "excludes"):
            for path in (ROOT / folder).glob(f"*.{suffix}"):
                shutil.copyfile(path, scratch / folder / path.name)


def compile_lock(uv: str, scratch: Path, lock: Path, upgrade: list[str] | None) -> None:
    """Write `lock` in the scratch folder anew. Raises LockError with uv's own words."""
    command = [uv, "pip", "compile", *COMMON_OPTIONS, *OPTIONS[lock.parent], *_upgrades(upgrade)]
    command += [f"--output-file={lock.name}", *_beside(scratch, lock), lock.with_suffix(".in").name]
    done = subprocess.run(command, cwd=scratch / lock.parent, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise LockError(f"{lock}: {done.stderr.strip()}")


def _upgrades(packages: list[str] | None) -> list[str]:
    if packages is None:
        return []
    return [f"--upgrade-package={package}" for package in packages] or ["--upgrade"]


def _beside(scratch: Path, lock: Path) -> Iterator[str]:
    """Options for the files beside the .in file."""
    overrides, excludes = lock.with_suffix(".overrides"), lock.with_suffix(".excludes")
    if (scratch / excludes).exists():
        yield f"--excludes={excludes.name}"
    if (scratch / overrides).exists():
        yield f"--overrides={overrides.name}"
        yield from _local_builds(_text(scratch / overrides))
    if lock in FOLLOWS:
        yield f"--constraints={_constraints(scratch, FOLLOWS[lock], overrides)}"


def _local_builds(overrides: str) -> Iterator[str]:
    """An override may name a build that no registry has (1.0+cpu). uv does not read pip's variable by itself.

    Only then: a folder with 2.13.0+cpu in it would win wherever a lock asks for 2.13.0.
    """
    if any("+" in version for version in pins(overrides).values()):
        for folder in os.environ.get("PIP_FIND_LINKS", "").split():
            yield f"--find-links={folder}"


def _constraints(scratch: Path, followed: Path, overrides: Path) -> str:
    """The followed lock's versions. Those overridden must be left out, or uv finds the two in conflict."""
    versions, overridden = pins(_text(scratch / followed)), pins(_text(scratch / overrides))
    kept = [f"{name}=={version}\n" for name, version in versions.items() if name not in overridden]
    path = scratch / followed.with_suffix(".versions")
    path.write_text("".join(kept), encoding="utf-8")
    return path.name


def pins(text: str) -> dict[str, str]:
    """Package to version, in a lock's text; versions for different platforms are joined by a comma."""
    found: dict[str, str] = {}
    for name, version in PIN.findall(text):
        found[name] = f"{found[name]}, {version}" if name in found else version
    return found


def changes(before: str, after: str) -> list[str]:
    """What differs, one line for a package; empty when nothing does."""
    if before == after:
        return []
    old, new = pins(before), pins(after)
    if not before:
        return [f"new, {len(new)} packages"]
    lines = [f"+ {name} {new[name]}" for name in sorted(new.keys() - old.keys())]
    lines += [f"- {name} {old[name]}" for name in sorted(old.keys() - new.keys())]
    moved = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
    lines += [f"~ {name} {old[name]} -> {new[name]}" for name in moved]
    return lines or ["the same versions, other hashes or comments"]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if a lock would differ")
    parser.add_argument("--upgrade", nargs="*", metavar="PACKAGE", help="newest versions, of all or of these")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LockError as problem:
        print(f"lock.py: {problem}", file=sys.stderr)
        sys.exit(2)
