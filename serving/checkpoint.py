"""A checkpoint: one model repository at one pinned revision, described file by file."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from serving.files import Strict, parse, read_yaml


class CheckpointFile(Strict):
    """One file of the repository: size in bytes, sha256 as hex."""

    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Checkpoint(Strict):
    """What one YAML file of group_data/checkpoints/ says."""

    purpose: str
    repository: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: str | None = Field(pattern=r"^[\w.-]+$", description="null where nobody has named one yet")
    licence: str
    experts: Literal["mxfp4", "nvfp4", "int4", "fp8", "bf16"]
    draft: Literal["mtp", "dspark"] | None = None
    size_gb: float = Field(gt=0)
    files: dict[str, CheckpointFile] | None = None

    def folder(self, models: str) -> str:
        return f"{models}/{self.repository}/{self.revision or 'REVISION'}"


def load_checkpoint(folder: Path, name: str) -> Checkpoint:
    shown = f"group_data/checkpoints/{name}.yaml"
    return parse(Checkpoint, read_yaml(folder / f"{name}.yaml", shown), shown)
