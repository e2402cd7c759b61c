"""The router of a plan: sglang-router on the entry port, with an engine of its own and without a GPU."""

from collections import Counter
from collections.abc import Sequence

from serving.contract import Value
from serving.engine import EngineOnHost
from serving.unit import Unit, Worker
from serving.wanted import Wanted, number

# sglang-router's own default. Left alone it listens on all addresses, and a taken port ends the router with a panic
# (0.3.2, measured): so it is one of the plan's ports.
PROMETHEUS = 29000
# What the router still needs once its last stream has ended.
GRACE_S = 10
# How the router counts workers in /workers, by the role of their unit.
COUNTED_AS = {"replica": "regular", "prefill": "prefill", "decode": "decode"}


def unit(wanted: Wanted, engine: EngineOnHost, units: Sequence[Unit]) -> Unit:
    """The router in front of these workers."""
    site, profile = wanted.site, wanted.profile
    workers = tuple(_worker(one) for one in units)
    prometheus = number(wanted.router_arguments, "prometheus_port", PROMETHEUS)
    own: dict[str, Value] = {
        "host": site.listen,
        "port": site.port,
        "prometheus_host": "127.0.0.1",
        "prometheus_port": prometheus,
        "shutdown_grace_period_secs": profile.stop_within_s,
        **_addresses(workers),
    }
    argv = engine.engine.contract.argv({**wanted.router_arguments, **own})
    return Unit(
        name="sglang-router",
        role="router",
        engine=engine,
        gpus=(),
        devices=(),
        numa_node=None,
        address=site.listen,
        port=site.port,
        argv=(engine.interpreter, "-m", "sglang_router.launch_router", *argv),
        arguments={},
        environment=_environment(engine),
        stop_within_s=profile.stop_within_s + GRACE_S,
        ports={"port": site.port, "prometheus_port": prometheus},
        entry=True,
        after=tuple(one.service for one in units),
        workers=workers,
        ready="/readiness",
        worker_counts=Counter(worker.role for worker in workers),
    )


def _worker(unit: Unit) -> Worker:
    return Worker(unit.name, unit.base_url, COUNTED_AS[unit.role], unit.ports.get("disaggregation_bootstrap_port"))


def _addresses(workers: Sequence[Worker]) -> dict[str, Value]:
    """The workers as the router's options. Without its bootstrap port a prefill worker is of no use to decode."""
    regular = [worker.url for worker in workers if worker.role == "regular"]
    if regular:
        return {"worker_urls": regular}
    by_role = {worker.role: worker for worker in workers}
    prefill, decode = by_role["prefill"], by_role["decode"]
    return {"pd_disaggregation": True, "prefill": [prefill.url, prefill.bootstrap_port], "decode": decode.url}


def _environment(engine: EngineOnHost) -> dict[str, str]:
    """It needs nothing of the host; HOME is the unit's own /tmp. It may not ask a hub for tokenizers."""
    return {
        "PATH": f"{engine.folder}/bin:/usr/bin:/bin",
        "HOME": "/tmp",  # noqa: S108 (private to the unit)
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
