"""What an engine has beyond its lock: wheels of one's own, such as a kernel built for this card, and patches."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from serving.files import OWN_WORDS, Strict
from serving.paths import WHEELS
from serving.problems import Problem

_WHEEL = re.compile(r"(?P<name>[A-Za-z0-9._]+)-(?P<version>[^-]+)(-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl")
_HOW_TO_NAME = "name a wheel as its builder named it: package-version-python-abi-platform.whl"


class Wheel(Strict):
    """A wheel from an address, or a file of group_data/engines/wheels/; it replaces the lock's of its package."""

    url: str | None = Field(default=None, pattern=r"^https?://[^\s#]+\.whl$")
    file: str | None = Field(default=None, pattern=r"^[^/\s]+\.whl$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    @model_validator(mode="after")
    def _one_place(self) -> "Wheel":
        if (self.url is None) == (self.file is None):
            self._refuse("needs one of url and file", "write the one that it comes from")
        if _WHEEL.fullmatch(self.file_name) is None:
            self._refuse(f"{self.file_name} is no name of a wheel", _HOW_TO_NAME)
        return self

    @staticmethod
    def _refuse(what: str, remedy: str) -> None:
        raise PydanticCustomError(OWN_WORDS, "{what}", {"what": what, "remedy": remedy})

    @property
    def file_name(self) -> str:
        return (self.url or self.file or "").rpartition("/")[2]

    @property
    def package(self) -> str:
        """The package as locks spell it."""
        found = _WHEEL.fullmatch(self.file_name)
        return re.sub(r"[-_.]+", "-", found["name"]).lower() if found else ""

    @property
    def path_on_host(self) -> str:
        """Where a wheel from a file is put; named by its content."""
        return f"{WHEELS}/{self.sha256[:16]}/{self.file_name}"

    @property
    def requirement(self) -> str:
        """Its line in a lock."""
        return f"{self.package} @ {self.url or f'file://{self.path_on_host}'} \\\n    --hash=sha256:{self.sha256}\n"


@dataclass(frozen=True)
class Patches:
    """Diffs in the order of their application, with how many leading folders their paths lose."""

    strip: int
    texts: tuple[tuple[str, str], ...]

    @property
    def document(self) -> bytes:
        """What the host gets; nothing where there are none."""
        if not self.texts:
            return b""
        patches = [{"name": name, "text": text} for name, text in self.texts]
        return json.dumps({"schema": 1, "strip": self.strip, "patches": patches}, indent=1).encode() + b"\n"


def read_patches(folder: Path | None, strip: int) -> Patches:
    """The *.patch files of the folder, in the order of their names."""
    found = sorted(folder.glob("*.patch")) if folder else []
    return Patches(strip, tuple((path.name, path.read_text(encoding="utf-8")) for path in found))


def with_wheels(lock: bytes, wheels: Sequence[Wheel]) -> bytes:
    """The lock with these wheels in place of what it has of their packages, or beside the rest."""
    if not wheels:
        return lock
    replaced = {wheel.package for wheel in wheels}
    # A block is the line of a package and the indented lines that belong to it.
    blocks = re.findall(r"^\S.*\n(?:[ \t].*\n)*", lock.decode(), re.MULTILINE)
    kept = [block for block in blocks if re.split(r"[=\[ ]", block)[0] not in replaced]
    return "".join([*kept, *(wheel.requirement for wheel in wheels)]).encode()


def problems(wheels: Sequence[Wheel], folder: Path, patches: Path | None, shown: str) -> Iterator[Problem]:
    """Files that the engine's YAML names and that are not there, or not what it says."""
    for wheel in wheels:
        path = folder / "wheels" / (wheel.file or "")
        if wheel.file and not path.is_file():
            yield Problem(shown, f"wheels.{wheel.file}", "does not exist", "put it into group_data/engines/wheels/")
        elif wheel.file and (found := hashlib.sha256(path.read_bytes()).hexdigest()) != wheel.sha256:
            what = f"has sha256 {found[:12]}..., the engine says {wheel.sha256[:12]}..."
            yield Problem(shown, f"wheels.{wheel.file}", what, "find out which is right, and correct the other")
    if patches and not any(patches.glob("*.patch")):
        what = f"no *.patch file lies in group_data/engines/patches/{patches.name}/"
        yield Problem(shown, "patches", what, "put the diffs there, or take the key away")
