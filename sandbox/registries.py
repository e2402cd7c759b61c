"""How this machine reaches its package registries, read from the clients' own configuration.

A host must use apt, pip and uv exactly as the outer machine does. Nothing here names a server.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from sandbox.commands import run
from sandbox.errors import NoDebianMirror

AUTHORITIES = Path("/usr/local/share/ca-certificates")
APT_OPTIONS = Path("/etc/apt/apt.conf.d")
# Options that decide whether a mirror, a cache or a proxy can be used at all; the rest is a matter of taste.
APT_OPTIONS_NEEDED = re.compile(r"Check-Valid-Until|Check-Date|Proxy", re.IGNORECASE)
# Suites that only a Debian mirror carries; it then has the base tree's suite as well.
DEBIAN_SUITES = {"bookworm", "trixie", "forky", "sid", "stable", "testing", "unstable"}
CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
WHEELS_INSIDE = "/srv/wheels"
INDEX_KEYS = ("index-url", "extra-index-url")
PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy")


def apt_sources(suite: str) -> tuple[str, ...]:
    """Return lines for sources.list that serve `suite`. Raises NoDebianMirror."""
    if mirror := os.environ.get("SANDBOX_MIRROR"):
        return (f"deb {mirror} {suite} main",)
    listing = run("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
    targets = [[*line.split(), "", "", ""][:3] for line in listing.splitlines()]
    same = [(site, release) for site, release, part in targets if part == "main" and release.startswith(suite)]
    other = [(site, suite) for site, release, _ in targets if release in DEBIAN_SUITES][:1]
    # Without the suite itself its updates alone would build no tree.
    chosen = same if any(release == suite for _, release in same) else other
    if not chosen:
        raise NoDebianMirror
    return tuple(dict.fromkeys(f"deb {site} {release} main" for site, release in chosen))


def apt_options() -> tuple[Path, ...]:
    """Return apt's configuration files about proxies and about the age of a mirror's index."""
    found = sorted(APT_OPTIONS.glob("*")) if APT_OPTIONS.is_dir() else []
    return tuple(path for path in found if path.is_file() and APT_OPTIONS_NEEDED.search(path.read_text()))


def authorities() -> tuple[Path, ...]:
    """Return the certificates of authorities that an administrator added to this machine."""
    return tuple(sorted(AUTHORITIES.glob("*.crt")))


def wheel_folder() -> Path | None:
    """Return the local folder of wheels that PIP_FIND_LINKS names, if it names one."""
    candidates = os.environ.get("PIP_FIND_LINKS", "").removeprefix("file://").split()
    return next((Path(item) for item in candidates if Path(item).is_dir()), None)


@dataclass(frozen=True)
class Indexes:
    """The Python package indexes that pip uses here, those reached over HTTP only."""

    main: str | None = None
    extra: tuple[str, ...] = ()

    @classmethod
    def of_pip(cls) -> Indexes:
        """Read them from pip's files and its environment variables."""
        settings = _pip_settings()
        main = _over_http(settings.get("index-url", ""))
        return cls(main[0] if main else None, _over_http(settings.get("extra-index-url", "")))

    def pip_conf(self) -> str:
        """Return /etc/pip.conf: bookworm's pip trusts the system's certificates only when told so."""
        lines = ["[global]", f"cert = {CA_BUNDLE}", "disable-pip-version-check = true"]
        lines += [f"index-url = {self.main}"] if self.main else []
        lines += [f"extra-index-url = {' '.join(self.extra)}"] if self.extra else []
        return "\n".join(lines) + "\n"

    def uv_toml(self) -> str:
        """Return /etc/uv/uv.toml, which every uv on the host reads. The option is that of uv 0.13."""
        lines = ["system-certs = true"]
        lines += [f'index-url = "{self.main}"'] if self.main else []
        # pip looks for the best version in all indexes; uv by default in the first that knows the name.
        merged = [f"extra-index-url = {json.dumps(self.extra)}", 'index-strategy = "unsafe-best-match"']
        lines += merged if self.extra else []
        return "\n".join(lines) + "\n"


def proxies() -> dict[str, str]:
    """Return the proxy variables set here, in the lower case that every client reads."""
    found = {name: os.environ.get(name) or os.environ.get(name.upper(), "") for name in PROXY_VARIABLES}
    return {name: value for name, value in found.items() if value}


def _pip_settings() -> dict[str, str]:
    """Merge pip's files, the later over the earlier, and the environment over all, in pip's own order.

    Read here and not asked of pip: a bare Debian has a Python without it, and the question takes half a second.
    """
    files = configparser.RawConfigParser()
    files.read(_pip_files(), encoding="utf-8")
    sections = [dict(files[part]) for part in ("global", "install") if part in files]
    settings = {key: value for section in sections for key, value in section.items()}
    environment = {key: os.environ.get(f"PIP_{key.upper().replace('-', '_')}") for key in INDEX_KEYS}
    return settings | {key: value for key, value in environment.items() if value}


def _pip_files() -> list[Path]:
    chosen = os.environ.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        return []  # pip's documented way to ignore every file
    home = Path(os.environ.get("HOME", "/root"))
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    of_machine = [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf")]
    of_user = [home / ".pip/pip.conf", config / "pip/pip.conf"]
    return [*of_machine, *of_user, Path(sys.prefix) / "pip.conf", *([Path(chosen)] if chosen else [])]


def _over_http(value: str) -> tuple[str, ...]:
    return tuple(url for url in value.split() if url.startswith(("http://", "https://")))
