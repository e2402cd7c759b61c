"""An engine: one locked Python environment, named by the digest of its lock."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import Field

from serving.contract import Contract
from serving.files import Strict, parse, read_yaml
from serving.paths import ENGINES
from serving.problems import Problem, Refused


class EngineData(Strict):
    """What one YAML file of group_data/engines/ says."""

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

    @cached_property
    def lock(self) -> bytes:
        return (self._folder / self.data.lock).read_bytes()

    @cached_property
    def contract(self) -> Contract:
        return Contract.load(self._folder / "contracts" / self.data.contract)

    def digest(self, python: str) -> str:
        """Name of the environment that this lock makes with this Python ("3.12")."""
        return hashlib.sha256(f"python {python}\n".encode() + self.lock).hexdigest()[:16]

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
        return frozenset({f"python{self.python}-venv", *kernels})

    @property
    def digest(self) -> str:
        return self.engine.digest(self.python)

    @property
    def folder(self) -> str:
        return self.engine.folder_on_host(self.python)

    @property
    def interpreter(self) -> str:
        return f"{self.folder}/bin/python"


def on_host(engine: Engine, pythons: Collection[str]) -> EngineOnHost:
    """The engine with the best of the Pythons ("3.12") that it was resolved for."""
    return EngineOnHost(engine, next((version for version in engine.data.python if version in pythons), ""))
