"""Which keys of a profile a topology needs, and which arguments the plan sets itself."""

from collections.abc import Iterator

from serving.problems import Problem
from serving.profile import Profile

# What a topology needs beside the rest, and what it may have; another has no use for either.
_NEEDED = {"single": (), "replicas": ("router_engine", "router", "replicas"), "pd": ("router_engine", "router")}
_ALLOWED = {**_NEEDED, "pd": (*_NEEDED["pd"], "prefill", "decode")}


def topology_problems(profile: Profile, where: str) -> Iterator[Problem]:
    """Keys that the profile's topology lacks, and those that only another one has."""
    for key in ("router_engine", "router", "replicas", "prefill", "decode"):
        given = getattr(profile, key) is not None
        if key in _NEEDED[profile.topology] and not given:
            yield Problem(where, key, f"is needed with topology {profile.topology}", "add it")
        if given and key not in _ALLOWED[profile.topology]:
            owners = " or ".join(name for name, keys in _ALLOWED.items() if key in keys)
            what = f"means nothing with topology {profile.topology}"
            yield Problem(where, key, what, f"take it out, or set topology: {owners}")


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
    "gpu_id_step": "the plan chooses the GPUs",
    "nccl_port": "the plan chooses the ports",
    "disaggregation_mode": "set `topology: pd`",
}
ROUTER_RESERVED = {
    "host": "set `listen` in group_data/all.py",
    "port": "set `port` in group_data/all.py",
    "worker_urls": "the plan names the workers",
    "prefill": "the plan names the workers",
    "decode": "the plan names the workers",
    "pd_disaggregation": "set `topology: pd`",
    "mini_lb": "it is for debugging only, says the router",
    "service_discovery": "the plan names the workers",
    "prometheus_host": "figures are for this host only",
    "shutdown_grace_period_secs": "set stop_within_s",
    "api_key": "a key never stands in a profile or on a command line",
    "control_plane_api_keys": "a key never stands in a profile or on a command line",
}
