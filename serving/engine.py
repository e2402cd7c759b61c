"""An engine: one locked Python environment, named by the digest of its lock."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import Field

from serving import additions
from serving.additions import Patches, Wheel
from serving.contract import Contract
from serving.files import Strict, parse, read_yaml
from serving.paths import ENGINES
from serving.problems import Problem, Refused


class Checks(Strict):
    """What a new engine is asked for before it is used: to import these, and to print the --help of its server."""

    imports: list[str] = Field(min_length=1)
    help: str = Field(description="the module that the units start")
    environment: dict[str, str] = Field(default_factory=dict)


class EngineData(Strict):
    """What one YAML file of group_data/engines/ says.

    `cuda_toolkit` is the folder of site-packages in which its lock brings nvcc. `wheels` and `patches` (a folder of
    group_data/engines/patches/) come on top of the lock.
    """

    purpose: str
    package: str
    version: str
    python: list[str] = Field(min_length=1, description="interpreters it was resolved for, best first")
    lock: str
    contract: str
    cuda: bool
    download_gb: float = Field(gt=0)
    installed_gb: float = Field(gt=0)
    versions: dict[str, str]
    checks: Checks
    cuda_toolkit: str | None = None
    wheels: list[Wheel] = Field(default_factory=list)
    patches: str | None = Field(default=None, pattern=r"^[\w.-]+$")
    patch_strip: int = Field(default=1, ge=0, description="leading folders of the paths in the diffs, as in patch -p")


class Engine:
    """An engine with its lock and its contract read from group_data/engines/."""

    def __init__(self, folder: Path, name: str) -> None:
        shown = f"group_data/engines/{name}.yaml"
        self.name = name
        self.data = parse(EngineData, read_yaml(folder / f"{name}.yaml", shown), shown)
        self._folder = folder
        files = {"lock": folder / self.data.lock, "contract": folder / "contracts" / self.data.contract}
        missing = [key for key, path in files.items() if not path.is_file()]
        if missing:
            remedy = "name one that lies in group_data/engines/"
            raise Refused(Problem(shown, key, f"{files[key].name} does not exist", remedy) for key in missing)
        wrong = list(additions.problems(self.data.wheels, folder, self._patch_folder, shown))
        if wrong:
            raise Refused(wrong)

    @property
    def _patch_folder(self) -> Path | None:
        return self._folder / "patches" / self.data.patches if self.data.patches else None

    @cached_property
    def lock(self) -> bytes:
        """The lock as the host installs it, with the engine's own wheels."""
        return additions.with_wheels((self._folder / self.data.lock).read_bytes(), self.data.wheels)

    @cached_property
    def patches(self) -> Patches:
        return additions.read_patches(self._patch_folder, self.data.patch_strip)

    def wheel(self, wheel: Wheel) -> bytes:
        """Content of a wheel that lies in group_data/engines/wheels/."""
        return (self._folder / "wheels" / str(wheel.file)).read_bytes()

    @cached_property
    def contract(self) -> Contract:
        return Contract.load(self._folder / "contracts" / self.data.contract)

    def digest(self, python: str) -> str:
        """Name of the environment that lock, wheels and patches make with this Python ("3.12")."""
        content = f"python {python}\n".encode() + self.lock + self.patches.document
        return hashlib.sha256(content).hexdigest()[:16]

    def folder_on_host(self, python: str) -> str:
        return f"{ENGINES}/{self.digest(python)}"


@dataclass(frozen=True)
class EngineOnHost:
    """An engine with the host's Python that it is installed for; "" where the host has none that fits."""

    engine: Engine
    python: str

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def data(self) -> EngineData:
        return self.engine.data

    @property
    def packages(self) -> frozenset[str]:
        """Packages of the distribution that it needs: virtual environments of its Python, which need not be the first.

        On a GPU Triton builds its driver stub with a C compiler and Python.h, SGLang its JIT kernels with g++.
        """
        kernels = {"g++", f"python{self.python}-dev"} if self.data.cuda else set()
        patches = {"patch"} if self.data.patches else set()
        return frozenset({f"python{self.python}-venv", *kernels, *patches})

    @property
    def digest(self) -> str:
        return self.engine.digest(self.python)

    @property
    def folder(self) -> str:
        return self.engine.folder_on_host(self.python)

    @property
    def cuda_home(self) -> str | None:
        """Where the units find nvcc, None where the engine brings none (hostkit/toolkit.py makes the folder)."""
        return f"{self.folder}/cuda" if self.data.cuda_toolkit else None

    @property
    def interpreter(self) -> str:
        return f"{self.folder}/bin/python"


def on_host(engine: Engine, pythons: Collection[str]) -> EngineOnHost:
    """The engine with the best of the Pythons ("3.12") that it was resolved for."""
    return EngineOnHost(engine, next((version for version in engine.data.python if version in pythons), ""))
