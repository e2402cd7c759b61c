"""A bundle for a host without a network: the wheels of a profile's engines, uv, their locks, and what it needs to know.

make bundle PROFILE=tp4-mxfp4 OUT=/media/usb/sglang [CHECKPOINT=/srv/models/<repository>/<revision>]

    bundle.json                            what is in it: profile, engines, locks (sha256), wheels (file: sha256)
    wheels/                                every wheel of every lock, for each Python that the engines are resolved for
    locks/                                 the locks that they are of
    checkpoints/<repository>/<revision>/   a copy, where CHECKPOINT names a folder; `models = "<bundle>/checkpoints"`
                                           serves it from there
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from serving.engine import Engine
from serving.plan import GROUP_DATA, load_wanted
from serving.problems import Refused
from serving.site import Site
from serving.wanted import Wanted

UV_LOCK = GROUP_DATA / "engines" / "uv.requirements.lock"
# manylinux tags of a host with glibc 2.34, newest first: pip takes each one literally (PEP 600).
_PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in range(34, 4, -1)), "manylinux2014_x86_64", "linux_x86_64")


class CannotBundle(Exception):
    """The bundle could not be made; the message says why."""


def digest_of(lock: bytes) -> str:
    """How a bundle names the lock whose wheels it has."""
    return hashlib.sha256(lock).hexdigest()


def make(wanted: Wanted, out: Path, checkpoint: Path | None, uv_lock: Path = UV_LOCK) -> None:
    """Write the bundle; bundle.json comes last, so that one that was cut off is none. Raises CannotBundle."""
    engines = [engine for engine in (wanted.engine, wanted.router_engine) if engine]
    for part in ("wheels", "locks"):
        (out / part).mkdir(parents=True, exist_ok=True)
    (out / "bundle.json").unlink(missing_ok=True)
    for engine in engines:
        (out / "locks" / f"{engine.name}.lock").write_bytes(engine.lock)
        for python in engine.data.python:
            _fetch(out, out / "locks" / f"{engine.name}.lock", python)
    shutil.copyfile(uv_lock, out / "locks" / "uv.lock")
    for python in sorted({python for engine in engines for python in engine.data.python}):
        _fetch(out, out / "locks" / "uv.lock", python)
    if checkpoint:
        _copy_checkpoint(wanted, checkpoint, out)
    (out / "bundle.json").write_text(json.dumps(_content(wanted, engines, out), indent=1) + "\n", encoding="utf-8")


def _content(wanted: Wanted, engines: Sequence[Engine], out: Path) -> dict[str, object]:
    return {
        "schema": 1,
        "profile": wanted.profile_name,
        "made": time.time(),
        "engines": [engine.name for engine in engines],
        "locks": sorted(digest_of(engine.lock) for engine in engines),
        "wheels": {path.name: digest_of(path.read_bytes()) for path in sorted((out / "wheels").glob("*.whl"))},
        "checkpoints": sorted(str(path.relative_to(out)) for path in out.glob("checkpoints/*/*/*")),
    }


def _fetch(out: Path, lock: Path, python: str) -> None:
    """Every wheel of the lock for this Python, by hash; those of the operator's own files are copied by the deploy."""
    local = lock.with_suffix(".fetch.txt")
    local.write_text("".join(_fetched_lines(lock.read_text(encoding="utf-8"))), encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", f"--python-version={python}", "--implementation=cp"]
    command += [f"--abi={abi}" for abi in (f"cp{python.replace('.', '')}", "abi3", "none")]
    command += [f"--platform={platform}" for platform in _PLATFORMS]
    done = subprocess.run(
        [*command, f"--dest={out / 'wheels'}", "-r", str(local)], stderr=subprocess.PIPE, text=True, check=False
    )
    local.unlink()
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise CannotBundle(f"the wheels of {lock.name} for Python {python}: {lines[-1] if lines else 'pip failed'}")


def _fetched_lines(text: str) -> Iterator[str]:
    """The lock without wheels that lie on the host itself."""
    keep = True
    for line in text.splitlines(keepends=True):
        if not line.startswith((" ", "\t", "#")):
            keep = "@ file://" not in line
        if keep:
            yield line


def _copy_checkpoint(wanted: Wanted, folder: Path, out: Path) -> None:
    checkpoint = wanted.checkpoint
    if checkpoint.revision is None or checkpoint.files is None:
        raise CannotBundle(f"{checkpoint.repository} has no revision or no manifest yet: make manifest comes first")
    for name, file in checkpoint.files.items():
        source, target = folder / name, Path(checkpoint.folder(str(out / "checkpoints"))) / name
        if not source.is_file() or source.stat().st_size != file.size:
            raise CannotBundle(f"{source} is missing or has another size than the manifest says")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("profile")
    parser.add_argument("out", type=Path)
    parser.add_argument("--checkpoint", type=Path, help="the folder of its files, to be copied as well")
    options = parser.parse_args(argv)
    site = Site(profile=options.profile, models="/srv/models", listen="127.0.0.1", port=30000, restart="allow")
    try:
        make(load_wanted(site), options.out, options.checkpoint)
    except (Refused, CannotBundle, OSError) as problem:
        print(f"no bundle: {problem}", file=sys.stderr)
        return 2
    size = sum(os.path.getsize(path) for path in options.out.rglob("*") if path.is_file())
    print(f'{options.out}: {size / 1e9:.1f} GB. On the host, then here: bundle = "/where/it/lies" in group_data')
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
