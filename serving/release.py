"""A release: a plan made concrete. One document that holds all a host needs to start it, named by what starts.

Its digest covers argv, environment, unit text without comments, engine, checkpoint revision and GPUs. A changed gate
or comment keeps the name, and so restarts nothing.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from serving import paths
from serving.plan import Plan, Unit
from serving.render import render


@dataclass(frozen=True)
class ReleaseFile:
    """A file that activation writes: absolute path, text, octal mode. Owner is root."""

    path: str
    text: str
    mode: str = "644"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


# What stands beside the servers and starts none of them: a change there is no new release.
_JOURNAL = f"/etc/systemd/journald@{paths.JOURNAL_NAMESPACE}.conf"
_NEEDRESTART = "/etc/needrestart/conf.d/50-sglang.conf"
_STARTS_NOTHING = (_JOURNAL, _NEEDRESTART, f"{paths.UNITS}/{paths.BOOT_UNIT}", f"{paths.UNITS}/{paths.NOTIFIER}")


class Release:
    """The release of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @cached_property
    def files(self) -> tuple[ReleaseFile, ...]:
        plan = self.plan
        shared: tuple[ReleaseFile, ...] = (
            ReleaseFile(f"{paths.CONFIG}/nccl.env", render("nccl.env.j2", plan=plan)),
            ReleaseFile(_JOURNAL, render("journald.conf.j2")),
            ReleaseFile(_NEEDRESTART, render("needrestart.conf.j2")),
            ReleaseFile(f"{paths.UNITS}/{paths.TARGET}", render("sglang.target.j2", plan=plan)),
            ReleaseFile(f"{paths.UNITS}/{paths.BOOT_UNIT}", render("boot.service.j2")),
            ReleaseFile(f"{paths.UNITS}/{paths.NOTIFIER}", render("notify.service.j2")),
        )
        if plan.wanted.api_key:
            shared += (ReleaseFile(f"{paths.CONFIG}/logging.json", render("logging.json.j2")),)
        return shared + tuple(file for unit in plan.units for file in _unit_files(plan, unit))

    @cached_property
    def digest(self) -> str:
        starts = {
            "engine": self.plan.engine_digest,
            "checkpoint": [self.plan.wanted.checkpoint.repository, self.plan.wanted.checkpoint.revision],
            "gpus": [[gpu.pci for gpu in unit.gpus] for unit in self.plan.units],
            "files": {
                file.path: without_comments(file.text) for file in self.files if file.path not in _STARTS_NOTHING
            },
        }
        return hashlib.sha256(json.dumps(starts, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def path(self) -> str:
        return f"{paths.RELEASES}/{self.digest}/release.json"

    @property
    def gates_path(self) -> str:
        return f"{paths.RELEASES}/{self.digest}/gates.json"

    @cached_property
    def document(self) -> str:
        plan, wanted = self.plan, self.plan.wanted
        content = {
            "schema": 1,
            "digest": self.digest,
            "profile": wanted.profile_name,
            "engine": {
                "name": wanted.engine.name,
                "digest": plan.engine_digest,
                "folder": plan.engine_folder,
                "package": wanted.engine.data.package,
                "version": wanted.engine.data.version,
            },
            "checkpoint": {
                "repository": wanted.checkpoint.repository,
                "revision": wanted.checkpoint.revision,
                "folder": plan.checkpoint_folder,
            },
            "cache": plan.cache_folder,
            "served_model_name": wanted.profile.served_model_name,
            "credential": wanted.api_key.path_on_host if wanted.api_key else None,
            "units": [_unit_document(unit, wanted.nccl, wanted.profile.stop_within_s) for unit in plan.units],
            "files": [
                {"path": file.path, "text": file.text, "mode": file.mode, "sha256": file.sha256} for file in self.files
            ],
        }
        return json.dumps(content, indent=1) + "\n"

    @cached_property
    def gates(self) -> str:
        return json.dumps({"schema": 1, **self.plan.wanted.profile.gates.model_dump()}, indent=1) + "\n"


def _unit_files(plan: Plan, unit: Unit) -> tuple[ReleaseFile, ...]:
    return (
        ReleaseFile(f"{paths.CONFIG}/{unit.name}.env", render("unit.env.j2", unit=unit)),
        ReleaseFile(f"{paths.UNITS}/{unit.service}", render("server.service.j2", plan=plan, unit=unit)),
    )


def _unit_document(unit: Unit, nccl: dict[str, Any], stop_within_s: int) -> dict[str, Any]:
    return {
        "name": unit.name,
        "role": unit.role,
        "address": unit.address,
        "port": unit.port,
        "argv": list(unit.argv),
        "arguments": dict(unit.arguments),
        "environment": {**{key: str(value) for key, value in nccl.items()}, **unit.environment},
        "gpus": [gpu.pci for gpu in unit.gpus],
        "stop_within_s": stop_within_s,
    }


def without_comments(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("#", ";")))
