"""Change a module as soon as it has been imported, and import nothing earlier than it would be."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

Change = Callable[[ModuleType], None]


def after_import(name: str, change: Change) -> None:
    """Have `change` called with the module once its own code has run; never where nothing imports it."""
    sys.meta_path.insert(0, _Finder(name, change))


class _Finder:
    """Finds one module as everybody else would, and hands it on with a loader of its own."""

    def __init__(self, name: str, change: Change) -> None:
        self._name, self._change = name, change

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)  # so that the search below does not end here again
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            spec.loader = _Loader(spec.loader, self._change)
        return spec


class _Loader(Loader):
    """Lets the module's own loader do the work, then changes what it made."""

    def __init__(self, own: Loader, change: Change) -> None:
        self._own, self._change = own, change

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._own.exec_module(module)
        self._change(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._own, name)
