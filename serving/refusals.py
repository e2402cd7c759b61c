"""What makes a plan impossible on this host. All of it is found at once, before the first change."""

import time
from collections.abc import Callable, Iterator

from serving import air_gap, combinations, drift, fetching, gpu_groups, unmanaged
from serving.paths import UNITS
from serving.plan import Plan
from serving.problems import Problem, Refused
from serving.release import Release
from serving.schemas import Gpu, GpuUse, HostState, Listener

# First driver branch with CUDA 13, which the engine's kernels are built for (NVIDIA CUDA 13.0 release notes).
LEAST_DRIVER = 580
# sglang 0.5.23 has wheels for manylinux_2_34 only (its PyPI metadata).
LEAST_GLIBC = (2, 34)
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def check(plan: Plan, release: Release) -> None:
    """Raises Refused with every problem of the plan on its host."""
    problems = [problem for rule in RULES for problem in rule(plan)]
    problems += [*combinations.problems(plan.wanted), *_restart_never(plan, release)]
    if problems:
        raise Refused(problems)


def _python(plan: Plan) -> Iterator[Problem]:
    for engine in plan.engines:
        if not engine.python:
            wanted, found = " or ".join(engine.data.python), ", ".join(plan.state.pythons) or "none"
            best = f"python{engine.data.python[0]}"
            what = f"the engine {engine.name} needs Python {wanted}, found {found}"
            yield Problem(plan.state.hostname, "python", what, f"apt-get install {best} {best}-venv")


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
    if state.driver is not None and any(len(unit.gpus) < profile.gpus for unit in plan.workers):
        many = profile.workers > 1
        needed = f"{profile.workers} groups of {profile.gpus}" if many else str(profile.gpus)
        sizes = [str(len(group)) for group in gpu_groups.groups(state.gpus, plan.wanted.site.gpu_groups)]
        found = f"{len(state.gpus)} found" + (f", in groups of {' and '.join(sizes)}" if len(sizes) > 1 else "")
        remedy = "see `nvidia-smi -L` and `dmesg | grep -i xid`, set gpu_groups, or use a smaller profile"
        yield Problem(state.hostname, "GPUs", f"{found}, the profile needs {needed}", remedy)
    for gpu in {gpu.pci: gpu for unit in plan.units for gpu in unit.gpus}.values():
        yield from _card(gpu, plan)


def _card(gpu: Gpu, plan: Plan) -> Iterator[Problem]:
    host, profile = plan.state.hostname, plan.wanted.profile
    if gpu.compute_capability != profile.compute_capability:
        what = f"{gpu.name} is sm {gpu.compute_capability}, the profile is for sm {profile.compute_capability}"
        yield Problem(host, f"GPU {gpu.pci}", what, "use a profile for this card")
    if gpu.minor is None:
        what = "its device node is unknown (neither /proc/driver/nvidia nor nvidia-smi -q names it)"
        yield Problem(host, f"GPU {gpu.pci}", what, "load the nvidia module: modprobe nvidia")
    if gpu.memory_total_mib < profile.gpu_memory_gib * 1024:
        what = f"has {gpu.memory_total_mib} MiB, the profile needs {profile.gpu_memory_gib} GiB"
        yield Problem(host, f"GPU {gpu.pci}", what, "use a profile for this card")


def _gpu_groups(plan: Plan) -> Iterator[Problem]:
    """A card named that the host does not have: a slip of the pen, or it fell off the bus."""
    if plan.state.driver is None:
        return
    known = {gpu.pci for gpu in plan.state.gpus}
    for pci in [pci for group in plan.wanted.site.gpu_groups or [] for pci in group if pci not in known]:
        what = f"{plan.state.hostname} has no GPU {pci}, or has it no more"
        remedy = f"take one of {', '.join(sorted(known))}; if it was there, see `dmesg | grep -i xid`"
        yield Problem("group_data", "gpu_groups", what, remedy)


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
    needed = {port: (unit, name) for unit in plan.units for name, port in unit.ports.items()}
    for listener in plan.state.listeners:
        known = _is_ours(listener, plan.state) or _is_known(listener, plan.state)
        if listener.port in needed and not known:
            unit, name = needed[listener.port]
            what = f"is in use on {listener.address} by {listener.process or 'an unknown process'}"
            another = "set `port` in group_data/all.py" if unit.entry and name == "port" else "use another profile"
            yield Problem(plan.state.hostname, f"port {listener.port}", what, f"stop it, or {another}")


def _ports_twice(plan: Plan) -> Iterator[Problem]:
    users: dict[int, list[str]] = {}
    for unit in plan.units:
        for name, port in unit.ports.items():
            users.setdefault(port, []).append(unit.name if name == "port" else f"{unit.name} ({name})")
    for port, names in users.items():
        if len(names) > 1:
            remedy = "set another `port` in group_data/all.py, or another one of these in the profile"
            yield Problem(plan.state.hostname, f"port {port}", f"is wanted by {' and by '.join(names)}", remedy)


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
        key = "" if plan.wanted.router_engine else ", or set api_key_file"
        yield Problem("group_data", "listen", what, f'use "127.0.0.1" and `ssh -L`{key}')


def _key_of_a_router(plan: Plan) -> Iterator[Problem]:
    """sglang-router 0.3.2 has --api-key and no file or variable for it: every user of the host could read the key."""
    if plan.wanted.api_key and plan.wanted.router_engine:
        what = f"cannot be given to the router of topology {plan.wanted.profile.topology} but on its command line"
        remedy = 'set it to None and keep `listen` at "127.0.0.1", or use a profile with `topology: single`'
        yield Problem("group_data", "api_key_file", what, remedy)


def _checkpoint(plan: Plan) -> Iterator[Problem]:
    checkpoint, folder = plan.wanted.checkpoint, plan.checkpoint_folder
    where = f"group_data/checkpoints/{plan.wanted.profile.checkpoint}.yaml"
    if checkpoint.revision is None:
        what = f"none is known for {checkpoint.repository}"
        remedy = f"make manifest REPO={checkpoint.repository} REV=main  (or the commit that you want)"
        yield Problem(where, "revision", what, remedy)
        return
    if fetching.may_come(plan):
        return
    if checkpoint.files is None:
        remedy = f"make manifest NAME={plan.wanted.profile.checkpoint} FOLDER={folder} (where the files are)"
        yield Problem(where, "files", f"no sizes and hashes are known for {checkpoint.repository}", remedy)
        return
    found = plan.state.checkpoints.get(folder, {}).get("files", {})
    for name, wanted in checkpoint.files.items():
        size = found.get(name, {}).get("size")
        if size != wanted.size:
            what = "is missing" if size is None else f"has {size} bytes, the manifest says {wanted.size}"
            yield Problem(plan.state.hostname, f"{folder}/{name}", what, "copy it to the host, or name hub_mirrors")


def _disk(plan: Plan) -> Iterator[Problem]:
    missing = [engine for engine in plan.engines if drift.engine_missing(engine, plan.state)]
    needed = sum(engine.data.installed_gb * 1.15 for engine in missing)
    free = plan.state.free_gb.get("/opt/sglang", 0.0)
    if free < needed:
        what = f"{free:.1f} GB free, {needed:.1f} GB are needed"
        yield Problem(plan.state.hostname, "disk of /opt/sglang", what, "free the difference or grow the file system")


def _disk_of_models(plan: Plan) -> Iterator[Problem]:
    """Where files may be adopted nobody knows before the host has looked at them."""
    models, site = plan.wanted.site.models, plan.wanted.site
    needed = fetching.on_host(plan).to_come_gb
    free = plan.state.free_gb.get(models, 0.0)
    if not site.adopt and needed and free < needed:
        what = f"{free:.1f} GB free, {needed:.1f} GB of the checkpoint are missing"
        yield Problem(plan.state.hostname, f"disk of {models}", what, "free the difference or grow the file system")


def _bundle(plan: Plan) -> Iterator[Problem]:
    """A host without a network has what was carried there, and nothing else."""
    folder, found = plan.wanted.site.bundle, plan.state.bundle
    if folder is None:
        return
    anew = f"make bundle PROFILE={plan.wanted.profile_name} OUT=... on a machine with a network, and carry it there"
    if found is None:
        yield Problem(plan.state.hostname, f"bundle {folder}", "has no bundle.json that can be read", anew)
        return
    for engine in plan.engines:
        if drift.engine_missing(engine, plan.state) and air_gap.digest_of(engine.engine.lock) not in found["locks"]:
            what = f"has not the wheels of {engine.name} as group_data has it now"
            yield Problem(plan.state.hostname, f"bundle {folder}", what, anew)
    lacking = sorted(frozenset[str]().union(*(one.packages for one in plan.engines)) - plan.state.packages.keys())
    if lacking:
        what = f"{', '.join(lacking)} are missing, and a bundle brings no packages of the distribution"
        remedy = f"from its media or a mirror that the host reaches: apt-get install {' '.join(lacking)}"
        yield Problem(plan.state.hostname, "packages", what, remedy)


def _restart_never(plan: Plan, release: Release) -> Iterator[Problem]:
    units = drift.to_start(release, plan.state)
    if plan.wanted.site.restart == "never" and units:
        what = f"this run would start or restart {', '.join(units)}"
        yield Problem("group_data", 'restart = "never"', what, 'set restart = "allow" when tokens may stop')


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit()) or (0,)


RULES: tuple[Callable[[Plan], Iterator[Problem]], ...] = (
    _platform,
    _python,
    _driver,
    _gpus,
    _gpu_groups,
    unmanaged.in_the_way_problems,
    _gpus_held,
    _ports,
    _ports_twice,
    _foreign_unit_file,
    _held,
    _public_bind,
    _key_of_a_router,
    _checkpoint,
    _disk,
    _disk_of_models,
    _bundle,
)
