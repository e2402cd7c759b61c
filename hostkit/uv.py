"""uv, pinned and installed from its own hash lock; and what it says when it fails, boiled down to one line."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hostkit import paths
from hostkit.events import Progress

_INSTALL_TIMEOUT_S = 3600
_SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_MISMATCH = re.compile(r"Hash mismatch for `([^`]+)`.*?Expected:\s+(.*?)\s+Computed:\s+sha256:(\w+)", re.DOTALL)
_PIP_MISMATCH = re.compile(r"DO NOT MATCH THE HASHES.*?\n\s+(\S+) .*?Expected (sha256 \w+).*?Got\s+(\w+)", re.DOTALL)
_UNREACHABLE = re.compile(
    r"Failed to fetch|error sending request|connection error|NewConnectionError|ConnectTimeout|timed out|dns error"
    r"|No address associated|Name or service not known|unreachable",
    re.IGNORECASE,
)


class Failed(Exception):
    """Packages could not be installed; the message says why in one line, `output` has all that was said."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


def find(request: dict[str, Any], progress: Progress) -> Path:
    """The uv of the request's `uv_lock`, in a folder of its own; pip puts it there. Raises Failed."""
    lock = Path(request["uv_lock"])
    final = paths.INSTALLER / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    if (final / "bin/uv").exists():
        return final / "bin/uv"
    progress.tell("installer", "uv, from its lock")
    partial = final.with_name(f"{final.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    _run([request["python"], "-m", "venv", str(partial)], 120)
    pip = [str(partial / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--require-hashes", *from_bundle(request), "-r", str(lock)], 600)
    partial.rename(final)
    return final / "bin/uv"


def from_bundle(request: dict[str, Any]) -> list[str]:
    """Options for pip and uv alike: where an air-gapped host has its wheels, they come from there and nowhere else."""
    return ["--no-index", "--find-links", f"{request['bundle']}/wheels"] if request.get("bundle") else []


def run(uv: Path, *words: str, cache: Path) -> str:
    """Standard output of uv, which downloads no Python and keeps its cache where it is told to. Raises Failed."""
    environment = {"UV_CACHE_DIR": str(cache), "UV_PYTHON_DOWNLOADS": "never", "UV_LINK_MODE": "hardlink"}
    if _SYSTEM_CERTIFICATES.exists() and "SSL_CERT_FILE" not in os.environ:
        environment["SSL_CERT_FILE"] = str(_SYSTEM_CERTIFICATES)
    return _run([str(uv), *words], _INSTALL_TIMEOUT_S, {**os.environ, **environment})


def _run(command: list[str], limit_s: float, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit_s, check=False)
    if done.returncode:
        output = done.stderr or done.stdout
        raise Failed(said(output), output)
    return done.stdout


def said(output: str) -> str:
    """What uv or pip said, in one line with a remedy."""
    mismatch = _MISMATCH.search(output) or _PIP_MISMATCH.search(output)
    if mismatch:
        name, expected, found = mismatch.groups()
        wanted = " or ".join(one[:12] for one in re.findall(r"sha256[: ](\w+)", expected)[:2])
        what = f"{name} is not the file that the lock names (sha256 {wanted}..., found {found[:12]}...)"
        return f"{what}: it was tampered with or replaced; mend the registry, or make the lock anew and look at it"
    if "No space left on device" in output:
        return f"the disk of {paths.ENGINES} is full; free some of it and run again"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if _UNREACHABLE.search(output):
        why = lines[-1].removeprefix("cause: ")
        return f"the package registry cannot be reached ({why[:160]}); mend the network or uv's settings, and run again"
    first = next(
        (line for line in lines if line.lower().startswith("error")), lines[-1] if lines else "it said nothing"
    )
    causes = [line.removeprefix("cause: ") for line in lines if line.startswith("cause: ")]
    return ": ".join([first.removeprefix("error: "), *causes[-1:]])[:400]
