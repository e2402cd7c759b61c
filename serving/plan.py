"""A plan: profile, site settings and what the host looks like, joined and checked. All else is computed from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.checkpoint import Checkpoint, load_checkpoint
from serving.contract import Value
from serving.engine import Engine
from serving.files import parse, read_yaml
from serving.paths import CACHES, CONFIG, HOSTKIT
from serving.problems import Problem, Refused
from serving.profile import RESERVED, Environment, NcclBlock, Profile, load_profile, shown_name
from serving.schemas import Gpu, HostState
from serving.secret import ApiKey
from serving.site import Site

ROOT = Path(__file__).resolve().parent.parent
GROUP_DATA = ROOT / "group_data"
# Where systemd shows the unit its credential, readable by the service user alone (systemd.exec(5), LoadCredential=).
CREDENTIAL_IN_UNIT = "/run/credentials/sglang-server.service/engine.yaml"


@dataclass(frozen=True)
class Wanted:
    """What is wanted, before any host was looked at: the files of group_data, read and checked."""

    site: Site
    profile_name: str
    profile: Profile
    engine: Engine
    checkpoint: Checkpoint
    arguments: Mapping[str, Value]
    nccl: Environment
    api_key: ApiKey | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Unit:
    """One systemd service of the plan. `arguments` are what /server_info must report back."""

    name: str
    role: str
    gpus: tuple[Gpu, ...]
    address: str
    port: int
    argv: tuple[str, ...]
    arguments: Mapping[str, Value]
    environment: Mapping[str, str]

    @property
    def service(self) -> str:
        return f"{self.name}.service"

    @property
    def base_url(self) -> str:
        """Where the host itself reaches the unit. hostkit/release.py says the same there."""
        address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.address, self.address)  # noqa: S104 (asked, not bound)
        return f"http://{f'[{address}]' if ':' in address else address}:{self.port}"


@dataclass(frozen=True)
class Plan:
    """What is wanted, on a host."""

    wanted: Wanted
    state: HostState
    python: str
    units: tuple[Unit, ...]

    @property
    def engine_digest(self) -> str:
        return self.wanted.engine.digest(self.python)

    @property
    def engine_folder(self) -> str:
        return self.wanted.engine.folder_on_host(self.python)

    @property
    def checkpoint_folder(self) -> str:
        return self.wanted.checkpoint.folder(self.wanted.site.models)

    @property
    def cache_folder(self) -> str:
        return f"{CACHES}/{self.engine_digest}"


def load_wanted(site: Site, group_data: Path = GROUP_DATA) -> Wanted:
    """Read what the site names. Raises Refused with the problems of all files together."""
    profile = load_profile(group_data / "profiles", site.profile)
    where = shown_name(site.profile)
    problems: list[Problem] = []

    def read(what: Any, *arguments: Any) -> Any:
        try:
            return what(*arguments)
        except Refused as refusal:
            problems.extend(refusal.problems)

    engine = read(Engine, group_data / "engines", site.engine or profile.engine)
    checkpoint = read(load_checkpoint, group_data / "checkpoints", profile.checkpoint)
    nccl = read(_load_nccl, group_data / "nccl", profile.nccl)
    api_key = read(ApiKey, ROOT / site.api_key_file) if site.api_key_file else None
    resolved = read(lambda: engine.contract.resolve(profile.arguments, where)) if engine else None
    reserved = RESERVED.keys() & resolved.values.keys() if resolved else set()
    problems += [Problem(where, f"arguments.{name}", "is set by the plan", RESERVED[name]) for name in sorted(reserved)]
    if problems or resolved is None:
        raise Refused(problems)
    return Wanted(site, site.profile, profile, engine, checkpoint, resolved.values, nccl, api_key, resolved.notes)


def _load_nccl(folder: Path, name: str | None) -> Environment:
    if name is None:
        return {}
    shown = f"group_data/nccl/{name}.yaml"
    return parse(NcclBlock, read_yaml(folder / f"{name}.yaml", shown), shown).root


def make_plan(wanted: Wanted, state: HostState) -> Plan:
    """The plan for this host. What the host lacks is left for refusals.py to say, all of it at once."""
    python = next((version for version in wanted.engine.data.python if version in state.pythons), "")
    gpus = tuple(state.gpus[: wanted.profile.gpus])
    return Plan(wanted, state, python, (_server(wanted, python, gpus),))


def _server(wanted: Wanted, python: str, gpus: tuple[Gpu, ...]) -> Unit:
    site, profile, engine = wanted.site, wanted.profile, wanted.engine
    own: dict[str, Value] = {
        "model_path": wanted.checkpoint.folder(site.models),
        "served_model_name": profile.served_model_name,
        "host": site.listen,
        "port": site.port,
    }
    arguments: dict[str, Value] = {**wanted.arguments, **own}
    secret: dict[str, Value] = {"config": CREDENTIAL_IN_UNIT} if wanted.api_key else {}
    interpreter = f"{engine.folder_on_host(python)}/bin/python"
    return Unit(
        name="sglang-server",
        role="server",
        gpus=gpus,
        address=site.listen,
        port=site.port,
        argv=(interpreter, "-m", "sglang.launch_server", *engine.contract.argv({**arguments, **secret})),
        arguments=engine.contract.by_dest(arguments),
        environment={**_base_environment(wanted, python, gpus), **profile.environment},  # type: ignore[dict-item]
    )


def _base_environment(wanted: Wanted, python: str, gpus: tuple[Gpu, ...]) -> dict[str, str]:
    """What every server needs: its GPUs in PCI order, a cache of its own, its tools on PATH, no hub at run time."""
    cache = f"{CACHES}/{wanted.engine.digest(python)}"
    return {
        "PATH": f"{wanted.engine.folder_on_host(python)}/bin:/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": cache,
        "SGLANG_CACHE_DIR": cache,
        "XDG_CACHE_HOME": cache,
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu.index) for gpu in gpus),
        **({"SGLANG_LOGGING_CONFIG_PATH": f"{CONFIG}/logging.json"} if wanted.api_key else {}),
    }


def hostkit_path(digest: str) -> str:
    return f"{HOSTKIT}/{digest}/hostkit.pyz"
