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


def _regular_expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression ({error})") from None
    return text


Pattern = Annotated[str, AfterValidator(_regular_expression)]


class Echo(Strict):
    """Random identifiers to be repeated verbatim: how many, how many at once, and the time (s) for all of them.

    200 at a concurrency of 12 found silently corrupted output within seconds (sglang #33800).
    """

    requests: int = Field(default=48, gt=0)
    concurrency: int = Field(default=12, gt=0)
    within_s: int = Field(default=60, gt=0)


class Log(Strict):
    """What the log of a start must say (regular expressions), and must not; whether decoding uses CUDA graphs."""

    expect: tuple[Pattern, ...] = ()
    forbid: tuple[Pattern, ...] = ()
    cuda_graph: bool = True


class Gates(Strict):
    """What must hold before a start is called good. A change here is no new release and restarts nothing.

    Times in s. gpus_free_within_s: for the memory of a stopped server to come back. stuck_after_s: a start that for so
    long neither logs, nor computes, nor reads from disk is given up. tok_s_floor: least tok/s by number of streams; a
    server below it is kept, and not accepted.
    """

    question: str
    answer: str
    answer_within_s: int = Field(default=60, gt=0)
    first_start_within_s: int = Field(default=2700, gt=0)
    start_within_s: int = Field(default=1200, gt=0)
    gpus_free_within_s: int = Field(default=90, gt=0)
    stuck_after_s: int = Field(default=300, gt=0)
    settle_s: int = Field(default=2, ge=0)
    echo: Echo = Echo()
    near_limit_within_s: int = Field(default=300, gt=0)
    tok_s_floor: dict[Annotated[int, Field(gt=0)], Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    log: Log = Log()


class Profile(Strict):
    """What one YAML file of group_data/profiles/ says. `arguments` are SGLang's own, by name."""

    purpose: str
    checkpoint: str
    engine: str
    gpus: int = Field(gt=0, description="GPUs of one server")
    gpu_memory_gib: int = Field(gt=0, description="least memory of each of them, GiB")
    compute_capability: str = Field(pattern=r"^\d+\.\d$")
    served_model_name: str = Field(pattern=r"^[\w./:-]+$")
    # The engine drains what it answers without a limit of its own (sglang 0.5.23, tokenizer_manager), then is killed.
    stop_within_s: int = Field(default=150, gt=0, description="time to drain at a stop, s")
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
