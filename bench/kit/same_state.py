"""What the playbook manages on a host, written down so that another tool can be given the same end state."""

import json
from pathlib import Path
from typing import Any

from sandbox.machine import Host
from serving import paths


def write_down(host: Host, folder: Path) -> Path:
    """Copy the managed files of a served host into `folder`; returns a JSON file that says where all of it belongs.

    Left out, in favour of the others: engine, checkpoint, what the process was started from, and the question.
    """
    release: dict[str, Any] = json.loads(host.read_file(f"{paths.STATE}/active/release.json"))
    state = {
        "packages": [f"python{_python(host)}-venv"],
        "user": {"name": paths.SERVICE_USER, "home": paths.STATE, "shell": "/usr/sbin/nologin"},
        "folders": [_folder(path) for path in _root_folders(release)] + [_folder(release["cache"], "700", "sglang")],
        "files": [_file(host, path, mode, folder) for path, mode in _files(host, release)],
        "links": [{"path": path, "target": _target(host, path)} for path in _links()],
        "units": [paths.TARGET, *(f"{unit['name']}.service" for unit in release["units"])],
    }
    path = folder / "state.json"
    path.write_text(json.dumps(state, indent=1))
    return path


def _python(host: Host) -> str:
    """The version of the distribution's Python, which is the engine's in the sandbox."""
    return host.run(["python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).stdout.strip()


def _root_folders(release: dict[str, Any]) -> list[str]:
    checkpoint = release["checkpoint"]
    models = checkpoint["folder"].removesuffix(f"/{checkpoint['repository']}/{checkpoint['revision']}")
    return [
        paths.ENGINES,
        paths.HOSTKIT,
        paths.INSTALLER,
        paths.CONFIG,
        paths.STATE,
        paths.RELEASES,
        paths.CACHES,
        models,
    ]


def _folder(path: str, mode: str = "755", owner: str = "root") -> dict[str, str]:
    return {"path": path, "mode": mode, "owner": owner}


def _files(host: Host, release: dict[str, Any]) -> list[tuple[str, str]]:
    """(path, mode) of each file, all owned by root."""
    staged = f"{paths.RELEASES}/{release['digest']}"
    own = [(_target(host, paths.CONSOLE_COMMAND), "755"), (f"{staged}/release.json", "644")]
    return [*own, (f"{staged}/gates.json", "644"), *((file["path"], file["mode"]) for file in release["files"])]


def _file(host: Host, path: str, mode: str, folder: Path) -> dict[str, str]:
    copy = folder / path.replace("/", "__")
    copy.write_bytes((host.view / path.lstrip("/")).read_bytes())
    return {"path": path, "mode": mode, "source": str(copy)}


def _links() -> list[str]:
    return [paths.CONSOLE_COMMAND, f"{paths.STATE}/active", f"{paths.STATE}/last-good"]


def _target(host: Host, link: str) -> str:
    return host.run(["readlink", link]).stdout.strip()
