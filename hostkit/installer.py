"""Installs an engine: a virtual environment that equals its hash lock, made beside and renamed when complete."""

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from hostkit import atomic, events, integrity, paths, systemd
from hostkit.events import Progress, Result

_INSTALL_TIMEOUT_S = 3600
_SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def install(request: dict[str, Any], progress: Progress) -> Result:
    """request: digest, lock, uv_lock (paths), python, find_links or null, installed_gb, package, versions."""
    final = paths.ENGINES / request["digest"]
    if integrity.is_intact(final):
        return Result(events.OK, f"engine {request['digest']} is there")
    partial = final.with_name(f"{final.name}.partial")
    _remove(partial)  # of one that was cut off
    try:
        return _installed(final, partial, request, progress)
    except BaseException:
        _remove(partial)  # a full disk must not stay full
        raise


def _remove(partial: Path) -> None:
    for leftover in (partial, _cache(partial)):
        shutil.rmtree(leftover, ignore_errors=True)


def _installed(final: Path, partial: Path, request: dict[str, Any], progress: Progress) -> Result:
    uv = _uv(request, progress)
    progress.tell("environment", f"new environment with {request['python']}")
    _run(
        str(uv),
        "venv",
        "--quiet",
        "--relocatable",
        "--python",
        request["python"],
        str(partial),
        partial=partial,
    )
    _fill(uv, partial, request, progress)
    wrong = _wrong_versions(partial, request["versions"])
    if wrong:
        shutil.rmtree(partial)
        return Result(events.REFUSED, f"the lock did not give what it should: {'; '.join(wrong)}")
    stamp(partial, request)
    if final.exists():
        atomic.exchange(partial, final)  # a running server finds its files at any moment: the old ones or the new
        shutil.rmtree(partial)
    else:
        partial.rename(final)
    atomic.sync_folder(final.parent)
    return Result(events.OK, f"engine {request['digest']} installed")


def _uv(request: dict[str, Any], progress: Progress) -> Path:
    """The pinned uv in a folder of its own, installed by pip from its hash lock."""
    lock = Path(request["uv_lock"])
    final = paths.INSTALLER / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    if (final / "bin/uv").exists():
        return final / "bin/uv"
    progress.tell("installer", "uv, from its lock")
    partial = final.with_name(f"{final.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    systemd.run(request["python"], "-m", "venv", str(partial), timeout_s=120)
    systemd.run(
        str(partial / "bin/python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--require-hashes",
        "-r",
        str(lock),
        timeout_s=600,
    )
    partial.rename(final)
    return final / "bin/uv"


def _fill(uv: Path, partial: Path, request: dict[str, Any], progress: Progress) -> None:
    command = [
        str(uv),
        "pip",
        "sync",
        "--quiet",
        "--require-hashes",
        "--compile-bytecode",
        "--python",
        str(partial / "bin/python"),
        request["lock"],
    ]
    if request["find_links"]:
        command += ["--find-links", request["find_links"]]
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(partial, request["installed_gb"], progress, done))
    watcher.start()
    try:
        _run(*command, partial=partial)
    finally:
        done.set()
        watcher.join()
    shutil.rmtree(_cache(partial), ignore_errors=True)


def _watch(partial: Path, expected_gb: float, progress: Progress, done: threading.Event) -> None:
    """Tell how much is on disk; files that cache and environment share count once."""
    started = time.monotonic()
    while not done.wait(2):
        size_gb = _disk_gb(partial, _cache(partial))
        percent = min(99.0, 100 * size_gb / expected_gb)
        eta_s = (time.monotonic() - started) * (100 - percent) / percent if percent > 5 else None
        progress.tell("packages", f"{size_gb:.1f} of about {expected_gb:.1f} GB", percent=percent, eta_s=eta_s)


def _disk_gb(*folders: Path) -> float:
    sizes: dict[int, int] = {}
    for root, _, names in itertools.chain.from_iterable(map(os.walk, folders)):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                info = os.lstat(os.path.join(root, name))
                sizes[info.st_ino] = info.st_blocks * 512
    return sum(sizes.values()) / 1e9


def _cache(partial: Path) -> Path:
    """uv's cache, beside the new folder: on the same file system files are linked and not copied."""
    return partial.with_suffix(".cache")


def _run(*command: str, partial: Path) -> None:
    environment = {
        **os.environ,
        "UV_CACHE_DIR": str(_cache(partial)),
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_LINK_MODE": "hardlink",
    }
    if _SYSTEM_CERTIFICATES.exists():
        environment.setdefault("SSL_CERT_FILE", str(_SYSTEM_CERTIFICATES))
    subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=True)


def _wrong_versions(environment: Path, expected: dict[str, str]) -> list[str]:
    script = "import json, sys; from importlib.metadata import version; "
    script += "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    found = json.loads(systemd.run(str(environment / "bin/python"), "-c", script, *expected, timeout_s=120))
    return [f"{name} is {found[name]}, not {version}" for name, version in expected.items() if found[name] != version]


def stamp(environment: Path, request: dict[str, Any]) -> None:
    """Say what the environment is, and how it looks now: from here on a change is seen."""
    document = {
        "schema": 1,
        "folders": integrity.folders(environment),
        "digest": request["digest"],
        "package": request["package"],
        "versions": request["versions"],
        "python": request["python"],
        "installed": time.time(),
    }
    atomic.write(environment / integrity.STAMP, json.dumps(document) + "\n")
