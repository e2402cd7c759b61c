"""A profile: one YAML file that says what to serve and how. Pure data; it may extend one other profile."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, RootModel

from serving.contract import Value
from serving.files import Strict, parse, read_yaml
from serving.gates import Gates
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
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Environment = dict[VariableName, EnvironmentValue]


class NcclBlock(RootModel[Environment]):
    """One YAML file of group_data/nccl/: variables for NCCL, the field's verdict beside each."""

    model_config = ConfigDict(frozen=True, strict=True)


class Overrides(Strict):
    """What prefill or decode has other than both: arguments and environment, where null takes one away."""

    arguments: dict[str, Value | None] = Field(default_factory=dict)
    environment: dict[VariableName, EnvironmentValue | None] = Field(default_factory=dict)


class Profile(Strict):
    """What one YAML file of group_data/profiles/ says. `arguments` are SGLang's own, by name.

    `gpus`, `arguments` and `environment` are those of each worker: of the one server, of each replica, of prefill and
    of decode. `router` holds sglang-router's own arguments.
    """

    purpose: str = Field(min_length=1)
    evidence: str = Field(min_length=1, description="who measured what with it, and what is unproven on this card")
    checkpoint: str
    engine: str
    topology: Literal["single", "replicas", "pd"] = "single"
    replicas: int | None = Field(default=None, gt=1, lt=100, description="servers behind the router")
    router_engine: str | None = None
    router: dict[str, Value] | None = None
    prefill: Overrides | None = None
    decode: Overrides | None = None
    gpus: int = Field(gt=0, description="GPUs of one worker")
    gpu_memory_gib: int = Field(gt=0, description="least memory of each of them, GiB")
    compute_capability: str = Field(pattern=r"^\d+\.\d$")
    served_model_name: str = Field(pattern=r"^[\w./:-]+$")
    # The engine drains what it answers without a limit of its own (sglang 0.5.23, tokenizer_manager), then is killed.
    stop_within_s: int = Field(default=150, gt=0, description="time to drain at a stop, s")
    nccl: str | None = None
    arguments: dict[str, Value]
    environment: Environment = Field(default_factory=dict)
    gates: Gates

    @property
    def worker_roles(self) -> tuple[str, ...]:
        """The roles that workers have; replicas share one."""
        return {"single": ("server",), "replicas": ("replica",), "pd": ("prefill", "decode")}[self.topology]

    @property
    def workers(self) -> int:
        """How many groups of GPUs it asks for."""
        return self.replicas or len(self.worker_roles)

    def overrides(self, role: str) -> Overrides:
        return {"prefill": self.prefill, "decode": self.decode}.get(role) or Overrides()

    def environment_of(self, role: str) -> dict[str, str]:
        """The environment of a worker: what all have, less and more what its role says."""
        joined = {**self.environment, **self.overrides(role).environment}
        return {name: str(value) for name, value in joined.items() if value is not None}


def load_profile(folder: Path, name: str) -> Profile:
    """The profile with what it extends filled in. Raises Refused with every problem of its files."""
    return parse(Profile, merged(folder, name), shown_name(name))


def shown_name(name: str) -> str:
    return f"group_data/profiles/{name}.yaml"


def merged(folder: Path, name: str) -> dict[str, Any]:
    """What the YAML says, with what it extends. Raises Refused where it cannot be read."""
    data = _read(folder, name)
    base_name = data.pop("extends", None)
    if base_name is None:
        return data
    base = _read(folder, str(base_name))
    if "extends" in base:
        what = f"extends {base_name}, which extends {base['extends']}"
        raise Refused([Problem(shown_name(name), "extends", what, "extend a profile that extends none")])
    joined: dict[str, Any] = _joined(base, data)
    return joined


def _joined(base: Any, own: Any, of_a_role: bool = False) -> Any:
    """Mappings are joined key by key, at every depth; a null takes a key away; anything else is replaced.

    Below prefill and decode a null stays: there it takes away what the profile says for both.
    """
    if not isinstance(base, dict) or not isinstance(own, dict):
        return own
    kept = {key: value for key, value in base.items() if key not in own}
    stays = {key: value for key, value in own.items() if value is not None or of_a_role}
    return kept | {
        key: _joined(base.get(key), value, of_a_role or key in ("prefill", "decode")) for key, value in stays.items()
    }


def _read(folder: Path, name: str) -> dict[str, Any]:
    if not re.fullmatch(r"[\w.-]+", name):
        raise Refused([Problem("group_data", "profile", f"{name!r} is no profile name", "name a file without .yaml")])
    return read_yaml(folder / f"{name}.yaml", shown_name(name))
