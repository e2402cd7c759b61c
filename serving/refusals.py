"""What makes a plan impossible on this host. All of it is found at once, before the first change."""

import time
from collections.abc import Callable, Iterator

from serving import drift, unmanaged
from serving.paths import UNITS
from serving.plan import Plan
from serving.problems import Problem, Refused
from serving.release import Release
from serving.schemas import GpuUse, HostState, Listener

# First driver branch with CUDA 13, which the engine's kernels are built for (NVIDIA CUDA 13.0 release notes).
LEAST_DRIVER = 580
# sglang 0.5.23 has wheels for manylinux_2_34 only (its PyPI metadata).
LEAST_GLIBC = (2, 34)
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def check(plan: Plan, release: Release) -> None:
    """Raises Refused with every problem of the plan on its host."""
    problems = [problem for rule in RULES for problem in rule(plan)] + list(_restart_never(plan, release))
    if problems:
        raise Refused(problems)


def _python(plan: Plan) -> Iterator[Problem]:
    if not plan.python:
        wanted = " or ".join(plan.wanted.engine.data.python)
        found = ", ".join(plan.state.pythons) or "none"
        best = f"python{plan.wanted.engine.data.python[0]}"
        remedy = f"apt-get install {best} {best}-venv"
        yield Problem(plan.state.hostname, "python", f"the engine needs Python {wanted}, found {found}", remedy)


def _platform(plan: Plan) -> Iterator[Problem]:
    state = plan.state
    if state.init != "systemd":
        yield Problem(state.hostname, "init", f"is {state.init}, not systemd", "use a host that systemd has booted")
    if state.arch != "x86_64":
        yield Problem(state.hostname, "architecture", f"is {state.arch}", "the engine's wheels are for x86_64 only")
    if _version(state.glibc) < LEAST_GLIBC:
        what = f"is {state.glibc}, the engine needs 2.34 or newer"
        yield Problem(state.hostname, "glibc", what, "use Ubuntu 22.04, Debian 12 or newer")


def _driver(plan: Plan) -> Iterator[Problem]:
    state = plan.state
    if state.driver is None:
        what = f"does not answer ({state.driver_error or 'nvidia-smi not found'})"
        yield Problem(state.hostname, "NVIDIA driver", what, "install the open kernel modules, branch 580 or newer")
    elif _version(state.driver)[0] < LEAST_DRIVER:
        what = f"is {state.driver}, CUDA 13 needs {LEAST_DRIVER} or newer"
        yield Problem(state.hostname, "NVIDIA driver", what, "upgrade the driver and reboot")


def _gpus(plan: Plan) -> Iterator[Problem]:
    state, profile = plan.state, plan.wanted.profile
    if state.driver is not None and len(state.gpus) < profile.gpus:
        what = f"{len(state.gpus)} found, the profile needs {profile.gpus}"
        yield Problem(
            state.hostname,
            "GPUs",
            what,
            "see `nvidia-smi -L` and `dmesg | grep -i xid`, or use a smaller profile",
        )
    for gpu in plan.units[0].gpus:
        if gpu.compute_capability != profile.compute_capability:
            what = f"{gpu.name} is sm {gpu.compute_capability}, the profile is for sm {profile.compute_capability}"
            yield Problem(state.hostname, f"GPU {gpu.pci}", what, "use a profile for this card")
        if gpu.minor is None:
            what = "its device node is unknown (neither /proc/driver/nvidia nor nvidia-smi -q names it)"
            yield Problem(state.hostname, f"GPU {gpu.pci}", what, "load the nvidia module: modprobe nvidia")
        if gpu.memory_total_mib < profile.gpu_memory_gib * 1024:
            what = f"has {gpu.memory_total_mib} MiB, the profile needs {profile.gpu_memory_gib} GiB"
            yield Problem(state.hostname, f"GPU {gpu.pci}", what, "use a profile for this card")


def _gpus_held(plan: Plan) -> Iterator[Problem]:
    """Held by a process of which nobody knows what it is; servers that are known have a line of their own."""
    for gpu, use in _foreign_uses(plan):
        remedy = f"stop it ({_how_to_stop(use)}) and run again"
        yield Problem(plan.state.hostname, f"GPU {gpu}", f"{use.used_mib} MiB held by {use.process}", remedy)


def _foreign_uses(plan: Plan) -> Iterator[tuple[str, GpuUse]]:
    needed = {gpu.pci for unit in plan.units for gpu in unit.gpus}
    for use in plan.state.gpu_uses:
        known = use.process.unit in plan.state.units or unmanaged.is_in_one(use.process.pid, plan.state)
        if use.pci in needed and not known:
            yield use.pci, use


def _how_to_stop(use: GpuUse) -> str:
    unit = use.process.unit
    return f"systemctl stop {unit}" if unit and unit.endswith(".service") else f"kill {use.process.pid}"


def _ports(plan: Plan) -> Iterator[Problem]:
    for unit in plan.units:
        for listener in plan.state.listeners:
            known = _is_ours(listener, plan.state) or _is_known(listener, plan.state)
            if listener.port == unit.port and not known:
                what = f"is in use on {listener.address} by {listener.process or 'an unknown process'}"
                yield Problem(
                    plan.state.hostname,
                    f"port {unit.port}",
                    what,
                    "stop it, or set `port` in group_data/all.py",
                )


def _is_ours(listener: Listener, state: HostState) -> bool:
    """The look lists those units only that a release of the playbook names."""
    return listener.process is not None and listener.process.unit in state.units


def _is_known(listener: Listener, state: HostState) -> bool:
    return listener.process is not None and unmanaged.is_in_one(listener.process.pid, state)


def _foreign_unit_file(plan: Plan) -> Iterator[Problem]:
    for unit in plan.units:
        path = f"{UNITS}/{unit.service}"
        if path in plan.state.files and unit.service not in plan.state.units:
            what = "is not from this playbook, which would overwrite it"
            yield Problem(plan.state.hostname, path, what, f"keep it elsewhere: mv {path} /root/")


def _held(plan: Plan) -> Iterator[Problem]:
    hold = plan.state.hold
    if hold:
        since = time.strftime("%F %T", time.localtime(hold["since"]))
        what = f"by {hold['by']} since {since}: {hold['why']}"
        remedy = "agree with them, then: pyinfra inventory.py commands/hold.py --data off=true"
        yield Problem(plan.state.hostname, "held", what, remedy)


def _public_bind(plan: Plan) -> Iterator[Problem]:
    if plan.wanted.site.listen not in LOOPBACK and not plan.wanted.api_key:
        what = f"{plan.wanted.site.listen} would be open to the network without an API key"
        yield Problem("group_data", "listen", what, 'use "127.0.0.1" and `ssh -L`, or set api_key_file')


def _memory_fraction(plan: Plan) -> Iterator[Problem]:
    fraction = plan.wanted.arguments.get("mem_fraction_static")
    if isinstance(fraction, int | float) and not 0.1 <= fraction <= 0.95:
        what = f"{fraction} is outside 0.1 to 0.95"
        yield Problem(_profile(plan), "arguments.mem_fraction_static", what, "0.85 is the field's ceiling for TP4")


def _gpu_count(plan: Plan) -> Iterator[Problem]:
    arguments, gpus = plan.wanted.arguments, plan.wanted.profile.gpus
    tp, pp = arguments.get("tp_size", 1), arguments.get("pp_size", 1)
    if isinstance(tp, int) and isinstance(pp, int) and tp * pp != gpus:
        yield Problem(_profile(plan), "gpus", f"is {gpus}, tp_size x pp_size is {tp * pp}", "make them equal")


def _marlin_with_experts_parallel(plan: Plan) -> Iterator[Problem]:
    arguments = plan.wanted.arguments
    ep = arguments.get("ep_size", 1)
    if arguments.get("moe_runner_backend") == "marlin" and isinstance(ep, int) and ep > 1:
        what = "crashes with moe_runner_backend marlin (sglang PR #30272)"
        yield Problem(_profile(plan), "arguments.ep_size", what, "use flashinfer_mxfp4, or leave ep_size away")


def _nvfp4(plan: Plan) -> Iterator[Problem]:
    """`auto` takes a TRT-LLM kernel that exists for SM100 only, and so do the MTP experts (sglang 0.5.23, its code)."""
    arguments = plan.wanted.arguments
    if plan.wanted.checkpoint.experts != "nvfp4":
        return
    if arguments.get("moe_runner_backend", "auto") == "auto":
        what = "auto picks a kernel for SM100 with an NVFP4 checkpoint"
        yield Problem(_profile(plan), "arguments.moe_runner_backend", what, "write flashinfer_cutlass or marlin")
    if arguments.get("speculative_algorithm") in ("EAGLE", "NEXTN"):
        what = "does not work with an NVFP4 checkpoint on this card"
        yield Problem(_profile(plan), "arguments.speculative_algorithm", what, "leave it away")


def _draft_head(plan: Plan) -> Iterator[Problem]:
    algorithm, draft = plan.wanted.arguments.get("speculative_algorithm"), plan.wanted.checkpoint.draft
    needs = {"EAGLE": "mtp", "NEXTN": "mtp", "DSPARK": "dspark"}.get(str(algorithm))
    if needs and needs != draft:
        repository = plan.wanted.checkpoint.repository
        what = f"{algorithm} needs a checkpoint with a {needs} head, {repository} has {draft or 'none'}"
        yield Problem(_profile(plan), "arguments.speculative_algorithm", what, "use the checkpoint it was trained with")


def _checkpoint(plan: Plan) -> Iterator[Problem]:
    checkpoint, folder = plan.wanted.checkpoint, plan.checkpoint_folder
    where = f"group_data/checkpoints/{plan.wanted.profile.checkpoint}.yaml"
    if checkpoint.files is None:
        remedy = f"make manifest NAME={plan.wanted.profile.checkpoint} FOLDER={folder} (where the files are)"
        yield Problem(where, "files", f"no sizes and hashes are known for {checkpoint.repository}", remedy)
        return
    found = plan.state.checkpoints.get(folder, {}).get("files", {})
    for name, wanted in checkpoint.files.items():
        size = found.get(name, {}).get("size")
        if size != wanted.size:
            what = "is missing" if size is None else f"has {size} bytes, the manifest says {wanted.size}"
            yield Problem(plan.state.hostname, f"{folder}/{name}", what, "copy this file to the host again")


def _disk(plan: Plan) -> Iterator[Problem]:
    needs: dict[str, float] = {}
    engine = plan.state.engines.get(plan.engine_digest)
    if engine is None or engine["changed"]:
        needs["/opt/sglang"] = plan.wanted.engine.data.installed_gb * 1.15
    for folder, needed in needs.items():
        free = plan.state.free_gb.get(folder, 0.0)
        if free < needed:
            what = f"{free:.1f} GB free, {needed:.1f} GB are needed"
            yield Problem(plan.state.hostname, f"disk of {folder}", what, "free the difference or grow the file system")


def _restart_never(plan: Plan, release: Release) -> Iterator[Problem]:
    units = drift.to_start(release, plan.state)
    if plan.wanted.site.restart == "never" and units:
        what = f"this run would start or restart {', '.join(units)}"
        yield Problem("group_data", 'restart = "never"', what, 'set restart = "allow" when tokens may stop')


def _profile(plan: Plan) -> str:
    return f"group_data/profiles/{plan.wanted.profile_name}.yaml"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit()) or (0,)


RULES: tuple[Callable[[Plan], Iterator[Problem]], ...] = (
    _platform,
    _python,
    _driver,
    _gpus,
    unmanaged.in_the_way_problems,
    _gpus_held,
    _ports,
    _foreign_unit_file,
    _held,
    _public_bind,
    _memory_fraction,
    _gpu_count,
    _marlin_with_experts_parallel,
    _nvfp4,
    _draft_head,
    _checkpoint,
    _disk,
)
