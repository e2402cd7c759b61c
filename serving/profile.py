"""A profile: one YAML file that says what to serve and how. Pure data; it may extend one other profile."""

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, RootModel

from serving.contract import Value
from serving.files import Strict, parse, read_yaml
from serving.problems import Problem, Refused

# systemd reads an environment file literally: a comment behind a value becomes part of it, and quotes,
# spaces and backslashes have rules of their own. Plain values have no such surprises.
_PLAIN = re.compile(r"[^\s\"'\\#;$%`]*")


def _plain(value: str | int | float) -> str:
    text = str(value)
    if isinstance(value, bool) or not _PLAIN.fullmatch(text):
        raise ValueError("must be a plain word or number: no spaces, quotes, backslashes, # or true/false")
    return text


EnvironmentValue = Annotated[str | int | float, AfterValidator(_plain)]
Environment = dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], EnvironmentValue]


class NcclBlock(RootModel[Environment]):
    """One YAML file of group_data/nccl/: variables for NCCL, the field's verdict beside each."""

    model_config = ConfigDict(frozen=True, strict=True)


class Gates(Strict):
    """What must hold before a start is called good. A change here is no new release and restarts nothing."""

    question: str
    answer: str
    answer_within_s: int = Field(60, gt=0)
    first_start_within_s: int = Field(2700, gt=0)
    start_within_s: int = Field(1200, gt=0)
    settle_s: int = Field(2, ge=0)


class Profile(Strict):
    """What one YAML file of group_data/profiles/ says. `arguments` are SGLang's own, by name."""

    purpose: str
    checkpoint: str
    engine: str
    gpus: int = Field(gt=0, description="GPUs of one server")
    gpu_memory_gib: int = Field(gt=0, description="least memory of each of them, GiB")
    compute_capability: str = Field(pattern=r"^\d+\.\d$")
    served_model_name: str = Field(pattern=r"^[\w./:-]+$")
    nccl: str | None = None
    arguments: dict[str, Value]
    environment: Environment = Field(default_factory=dict)
    gates: Gates


# What the plan sets itself, and where an operator sets it instead.
RESERVED = {
    "model_path": "name a checkpoint",
    "served_model_name": "use the profile's own key served_model_name",
    "host": "set `listen` in group_data/all.py",
    "port": "set `port` in group_data/all.py",
    "api_key": "a key never stands in a profile or on a command line",
    "admin_api_key": "a key never stands in a profile or on a command line",
    "config": "write the arguments into the profile",
    "base_gpu_id": "the plan chooses the GPUs",
}


def load_profile(folder: Path, name: str) -> Profile:
    """The profile with what it extends filled in. Raises Refused with every problem of its files."""
    return parse(Profile, _merged(folder, name), shown_name(name))


def shown_name(name: str) -> str:
    return f"group_data/profiles/{name}.yaml"


def _merged(folder: Path, name: str) -> dict[str, Any]:
    data = _read(folder, name)
    base_name = data.pop("extends", None)
    if base_name is None:
        return data
    base = _read(folder, str(base_name))
    if "extends" in base:
        what = f"extends {base_name}, which extends {base['extends']}"
        raise Refused([Problem(shown_name(name), "extends", what, "extend a profile that extends none")])
    return {key: _joined(base.get(key), data.get(key)) for key in {**base, **data}}


def _joined(base: Any, own: Any) -> Any:
    """Mappings are joined key by key, a null takes a key away; anything else is replaced."""
    if isinstance(base, dict) and isinstance(own, dict):
        return {key: value for key, value in {**base, **own}.items() if value is not None}
    return base if own is None else own


def _read(folder: Path, name: str) -> dict[str, Any]:
    if not re.fullmatch(r"[\w.-]+", name):
        raise Refused([Problem("group_data", "profile", f"{name!r} is no profile name", "name a file without .yaml")])
    return read_yaml(folder / f"{name}.yaml", shown_name(name))
