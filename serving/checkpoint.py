"""A checkpoint: one model repository at one pinned revision, described file by file (its manifest)."""

from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from serving.files import OWN_WORDS, Strict, parse, read_yaml

SHOWN = "group_data/checkpoints"
Experts = Literal["mxfp4", "nvfp4", "int4", "fp8", "bf16"]


def _path(name: str) -> str:
    """A path below the checkpoint's folder and nowhere else: these names come from a hub, and root writes them."""
    parts = PurePosixPath(name).parts
    has_control = any(ord(character) < 0x20 or ord(character) == 0x7F for character in name)
    if str(PurePosixPath(name)) != name or not parts or name.startswith("/") or ".." in parts or has_control:
        raise _own_words(f"{name!r} is no path below a folder", "take the manifest from a hub that you trust")
    return name


def _own_words(what: str, remedy: str) -> PydanticCustomError:
    return PydanticCustomError(OWN_WORDS, "{what}", {"what": what, "remedy": remedy})


class CheckpointFile(Strict):
    """One file of the repository: size in bytes, and one hash as hex.

    sha256 is what a hub gives for files in LFS (its oid), git_blob_id what it gives for the small ones: git's sha1.
    """

    size: int = Field(ge=0)
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    git_blob_id: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")

    @model_validator(mode="after")
    def _one_hash(self) -> "CheckpointFile":
        if (self.sha256 is None) == (self.git_blob_id is None):
            raise _own_words("has not exactly one of sha256 and git_blob_id", "make the manifest again: make manifest")
        return self


Files = dict[Annotated[str, AfterValidator(_path)], CheckpointFile]


class Checkpoint(Strict):
    """What one YAML file of group_data/checkpoints/ says. `size_gb` as somebody reported it, `total` in bytes."""

    purpose: str
    repository: str = Field(pattern=r"^\w[\w.-]*/\w[\w.-]*$")
    revision: str | None = Field(pattern=r"^[0-9a-f]{40}$", description="null where nobody has named one yet")
    licence: str
    date: str | None = Field(
        default=None, pattern=r"^\d{4}-\d{2}-\d{2}$", description="of the repository's last change"
    )
    experts: Experts
    draft: Literal["mtp", "dspark"] | None = None
    size_gb: float = Field(gt=0)
    total: int | None = Field(default=None, ge=0)
    files: Files | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _adds_up(self) -> "Checkpoint":
        if self.files is None:
            return self
        if self.revision is None:
            raise _own_words("files are given for no revision", "make the manifest again: make manifest")
        total = sum(file.size for file in self.files.values())
        if self.total not in (None, total):
            what = f"the files have {total} bytes together, total says {self.total}"
            raise _own_words(what, "make the manifest again: make manifest")
        return self

    def folder(self, models: str) -> str:
        return f"{models}/{self.repository}/{self.revision or 'REVISION'}"

    @property
    def wanted_files(self) -> dict[str, dict[str, Any]] | None:
        """Each file as the host is told of it; None where nobody has made the manifest."""
        if self.files is None:
            return None
        return {name: file.model_dump(exclude_none=True) for name, file in self.files.items()}


def load_checkpoint(folder: Path, name: str) -> Checkpoint:
    shown = f"{SHOWN}/{name}.yaml"
    return parse(Checkpoint, read_yaml(folder / f"{name}.yaml", shown), shown)
