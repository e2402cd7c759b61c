"""What is wanted, before any host was looked at: the files of group_data, read and checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serving.checkpoint import Checkpoint, load_checkpoint
from serving.contract import Resolved, Value
from serving.engine import Engine
from serving.files import parse, read_yaml
from serving.problems import Problem, Refused
from serving.profile import Environment, NcclBlock, Profile, load_profile, shown_name
from serving.secret import ApiKey, HubToken
from serving.site import Site
from serving.topology_keys import RESERVED, ROUTER_RESERVED, topology_problems

ROOT = Path(__file__).resolve().parent.parent
GROUP_DATA = ROOT / "group_data"


@dataclass(frozen=True)
class Wanted:
    """What the site names, read and checked.

    `arguments` are those of all workers by full name; `overrides` what a role has instead, None for one taken away.
    """

    site: Site
    profile_name: str
    profile: Profile
    engine: Engine
    checkpoint: Checkpoint
    arguments: Mapping[str, Value]
    nccl: Environment
    api_key: ApiKey | None
    hub_token: HubToken | None
    notes: tuple[str, ...]
    overrides: Mapping[str, Mapping[str, Value | None]] = field(default_factory=dict)
    router_engine: Engine | None = None
    router_arguments: Mapping[str, Value] = field(default_factory=dict)

    def arguments_of(self, role: str) -> dict[str, Value]:
        """What the profile gives a worker of this role."""
        joined = {**self.arguments, **self.overrides.get(role, {})}
        return {name: value for name, value in joined.items() if value is not None}


def load_wanted(site: Site, group_data: Path = GROUP_DATA) -> Wanted:
    """Read what the site names. Raises Refused with the problems of all files together."""
    profile = load_profile(group_data / "profiles", site.profile)
    where = shown_name(site.profile)
    problems: list[Problem] = list(topology_problems(profile, where))

    def read(what: Any, *arguments: Any) -> Any:
        try:
            return what(*arguments)
        except Refused as refusal:
            problems.extend(refusal.problems)

    engines = group_data / "engines"
    engine = read(Engine, engines, site.engine or profile.engine)
    router_engine = read(Engine, engines, profile.router_engine) if profile.router_engine else None
    checkpoint = read(load_checkpoint, group_data / "checkpoints", profile.checkpoint)
    nccl = read(_load_nccl, group_data / "nccl", profile.nccl)
    api_key = read(ApiKey, ROOT / site.api_key_file) if site.api_key_file else None
    hub_token = read(HubToken, ROOT / site.hub_token_file) if site.hub_token_file else None
    common = read(_resolved, engine, profile.arguments, where, "arguments", RESERVED)
    router = read(_resolved, router_engine, profile.router or {}, where, "router", ROUTER_RESERVED)
    overrides = {role: read(_overrides, engine, profile, role, where) for role in profile.worker_roles}
    if problems:
        raise Refused(problems)
    return Wanted(
        site=site,
        profile_name=site.profile,
        profile=profile,
        engine=engine,
        checkpoint=checkpoint,
        arguments=common.values,
        nccl=nccl,
        api_key=api_key,
        hub_token=hub_token,
        notes=(*common.notes, *router.notes),
        overrides=overrides,
        router_engine=router_engine,
        router_arguments=router.values,
    )


def _resolved(
    engine: Engine | None, arguments: Mapping[str, Value], where: str, under: str, reserved: Mapping[str, str]
) -> Resolved:
    """The arguments by full name. Raises Refused for those that the contract does not take or the plan sets."""
    if engine is None:
        return Resolved({}, ())
    resolved = engine.contract.resolve(arguments, where, under)
    taken = sorted(reserved.keys() & resolved.values.keys())
    if taken:
        raise Refused(Problem(where, f"{under}.{name}", "is set by the plan", reserved[name]) for name in taken)
    return resolved


def _overrides(engine: Engine | None, profile: Profile, role: str, where: str) -> Mapping[str, Value | None]:
    if engine is None:
        return {}
    arguments, under = profile.overrides(role).arguments, f"{role}.arguments"
    given = {name: value for name, value in arguments.items() if value is not None}
    resolved = _resolved(engine, given, where, under, RESERVED).values
    taken_away = [engine.contract.find(name, where, under).name for name in arguments.keys() - given.keys()]
    return {**resolved, **dict.fromkeys(taken_away)}


def number(arguments: Mapping[str, Value], name: str, otherwise: int) -> int:
    """An argument that the contract knows as a whole number."""
    value = arguments.get(name, otherwise)
    return value if isinstance(value, int) else otherwise


def _load_nccl(folder: Path, name: str | None) -> Environment:
    if name is None:
        return {}
    shown = f"group_data/nccl/{name}.yaml"
    return parse(NcclBlock, read_yaml(folder / f"{name}.yaml", shown), shown).root
