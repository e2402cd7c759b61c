"""A prepared engine: site-packages brought along, for a machine that reaches no registry.

It is put where the playbook would have installed it, with the stamp that the installer writes: the playbook finds it
installed and intact. Its lock names what is in it; nothing could be installed from it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from hostkit import installer
from sandbox.gpu_host.machine import GpuHost
from sandbox.gpu_host.project import Project
from serving.engine import Engine

NAME = "prepared"
PYTHON = "3.12"
_SHOWN = ("sglang", "sglang-kernel", "torch", "triton", "transformers", "sgl-deep-gemm")


@dataclass(frozen=True)
class Prepared:
    """`packages` are its own site-packages; `base` are those that it builds on (torch), by their path inside."""

    packages: Path
    base: Path


def put(host: GpuHost, project: Project, prepared: Prepared) -> str:
    """Describe it in the project's group_data and lay it down on the running host; returns its name."""
    versions = _versions(prepared.packages) | {"torch": _versions(Path(f"{host.view}{prepared.base}"))["torch"]}
    lock = "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))
    data = {
        "purpose": "brought along ready, for a machine that reaches no registry",
        "package": "sglang",
        "version": versions["sglang"],
        "python": [PYTHON],
        "lock": f"{NAME}.lock",
        "contract": f"sglang-{versions['sglang']}.json",
        "cuda": True,
        "download_gb": 0.1,
        "installed_gb": 0.5,
        "versions": {name: versions[name] for name in _SHOWN if name in versions},
    }
    project.put_engine(NAME, data, lock)
    _lay_down(host, Engine(project.group_data / "engines", NAME), prepared)
    return NAME


def _lay_down(host: GpuHost, engine: Engine, prepared: Prepared) -> None:
    folder = Path(engine.folder_on_host(PYTHON))
    outside = Path(f"{host.view}{folder}")
    packages = outside / f"lib/python{PYTHON}/site-packages"
    shutil.rmtree(outside, ignore_errors=True)
    shutil.copytree(prepared.packages, packages, symlinks=True)
    (packages / "base.pth").write_text(f"import site; site.addsitedir({str(prepared.base)!r})\n")
    (outside / "bin").mkdir()
    (outside / "bin/python").symlink_to(f"/usr/bin/python{PYTHON}")
    (outside / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n")
    for tool in (packages / "bin").glob("*"):
        shutil.copy2(tool, outside / "bin")
    _own(outside)
    # The service user may not write here: without bytecode every start would compile the engine anew.
    host.run([f"{folder}/bin/python", "-m", "compileall", "-q", "-j", "0", f"{folder}/lib"], limit_s=240)
    request = {"digest": folder.name, "package": "sglang", "versions": engine.data.versions}
    installer.stamp(outside, {**request, "python": f"/usr/bin/python{PYTHON}"}, [], {})


def _own(folder: Path) -> None:
    """Root's, and readable by all, whatever the umask and the owner were where it was packed."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            shutil.chown(path, 0, 0)
            path.chmod(path.stat().st_mode & 0o777 | (0o755 if path.is_dir() else 0o644))


def _versions(packages: Path) -> dict[str, str]:
    return {str(one.metadata["Name"]).lower(): one.version for one in distributions(path=[str(packages)])}
