"""What a new engine must show before it gets its name: its versions, its imports, its server's --help, its compiler."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hostkit import compiler, paths, systemd, toolkit, uv

_LIMIT_S = 600
# Imports, then the --help of the module that the units start, in one process: both load the same packages.
_SHOW = (
    "import importlib, json, runpy, sys\n"
    "imports, module = json.loads(sys.argv[1])\n"
    "for name in imports: importlib.import_module(name)\n"
    "sys.argv = [module, '--help']\n"
    "runpy.run_module(module, run_name='__main__', alter_sys=True)\n"
)
_VERSIONS = (
    "import json, sys; from importlib.metadata import distributions; "
    "print(json.dumps(sorted([d.metadata['Name'].lower().replace('_', '-'), d.version] for d in distributions())))"
)


def packages(environment: Path) -> list[list[str]]:
    """[name, version] of all that is installed, in order. It is the same on two hosts with the same lock."""
    found: list[list[str]] = json.loads(
        systemd.run(str(environment / "bin/python"), "-I", "-c", _VERSIONS, timeout_s=120)
    )
    return found


def check_versions(environment: Path, expected: dict[str, str]) -> list[list[str]]:
    """The installed packages. Raises uv.Failed where one of the expected has another version."""
    found = packages(environment)
    have = {name: version for name, version in found}  # noqa: C416 (lists of two)
    wrong = [
        f"{name} is {have.get(name, 'missing')}, not {one}" for name, one in expected.items() if have.get(name) != one
    ]
    if wrong:
        raise uv.Failed(f"the lock did not give what its engine promises: {'; '.join(wrong)}; make the lock anew")
    return found


def check_imports(environment: Path, checks: dict[str, Any]) -> str:
    """Import what the engine is and ask its server for --help, as the service user. Raises uv.Failed."""
    if not checks["help"]:
        return "nothing to import"
    with tempfile.TemporaryDirectory(prefix="sglang-import-") as home:
        shutil.chown(home, paths.SERVICE_USER, paths.SERVICE_USER)
        done = subprocess.run(
            [str(environment / "bin/python"), "-c", _SHOW, json.dumps([checks["imports"], checks["help"]])],
            env={"PATH": _path(environment), "HOME": home, "HF_HUB_OFFLINE": "1", **checks["environment"]},
            user=paths.SERVICE_USER,
            group=paths.SERVICE_USER,
            extra_groups=[],
            cwd=home,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        told = lines[-1].strip()[:240] if lines else f"exit status {done.returncode}"
        what = f"`python -m {checks['help']} --help` of the new engine fails: {told}"
        raise uv.Failed(f"{what}; mend its lock, wheels or patches", done.stderr)
    return f"{', '.join(checks['imports'])} imported, {checks['help']} --help read"


def check_compiler(environment: Path, cuda_toolkit: str | None) -> str:
    """Compile a kernel with the toolkit of the engine. Raises uv.Failed."""
    if not cuda_toolkit:
        return "no kernels to compile"
    try:
        return compiler.check({"PATH": _path(environment), "CUDA_HOME": str(environment / toolkit.FOLDER)})
    except compiler.CannotCompile as problem:
        raise uv.Failed(str(problem)) from None


def _path(environment: Path) -> str:
    return f"{environment}/bin:{environment}/{toolkit.FOLDER}/bin:/usr/local/bin:/usr/bin:/bin"
