"""What of a checkpoint is on a host, as the look saw it, and what has to come: for the plan and its refusals."""

from dataclasses import dataclass

from serving.plan import Plan

INCOMPLETE = ".incomplete"


@dataclass(frozen=True)
class OnHost:
    """`checked`: no file has changed since every byte was. Bytes: `missing` of files that are not there or have another
    size, `begun` of those what an earlier fetch has left, which a look takes for right."""

    checked: bool
    missing: int
    begun: int

    @property
    def to_come_gb(self) -> float:
        return max(0, self.missing - self.begun) / 1e9


def on_host(plan: Plan) -> OnHost:
    folder, files = plan.checkpoint_folder, plan.wanted.checkpoint.wanted_files
    found = plan.state.checkpoints.get(folder, {"files": {}, "stamp": None})
    stamp, here = found["stamp"] or {}, found["files"]
    known = stamp.get("manifest", {}) if files is None else files
    seen, held_against = stamp.get("files", {}), stamp.get("manifest", {})
    checked = bool(known) and all(
        name in here and seen.get(name) == here[name] and held_against.get(name) == file for name, file in known.items()
    )
    if files is None:
        missing = 0 if here else int(plan.wanted.checkpoint.size_gb * 1e9)
    else:
        missing = sum(file["size"] for name, file in files.items() if here.get(name, {}).get("size") != file["size"])
    begun = plan.state.checkpoints.get(folder + INCOMPLETE, {}).get("on_disk", 0)
    return OnHost(checked, missing, min(begun, missing))


def may_come(plan: Plan) -> bool:
    """Whether the settings name a place to have files from."""
    return bool(plan.wanted.site.sources or plan.wanted.site.adopt)
