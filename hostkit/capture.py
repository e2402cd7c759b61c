"""Evidence of a sick server, taken before it is stopped: within 20 s, whatever hangs.

Each part has a limit of its own and runs in a thread beside the others. One that hangs (a process in the driver,
nvidia-smi) is left behind; what it had said by then is kept, and index.json names it.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hostkit import atomic, client, console, credential, events, evidence, paths, redact, release, systemd
from hostkit.side_by_side import Taken, take

LIMIT_S = 20.0
_WRITING_S = 2.0  # of the limit
_KEPT = 10
# Roles that answer a question by themselves; a prefill or decode server does so through its router only.
_ANSWERING = ("server", "replica", "router")


def capture(unit: dict[str, Any] | str, document: dict[str, Any], reason: str) -> Path:
    """Take evidence of the unit, one of the release document's or any by name; the folder that holds it.

    Raises OSError where nothing can be written, subprocess.SubprocessError where systemd does not answer.
    """
    began, deadline = time.time(), time.monotonic() + LIMIT_S - _WRITING_S
    name = (unit if isinstance(unit, str) else str(unit["name"])).removesuffix(".service")
    described = next((one for one in document.get("units", []) if one["name"] == name), None)
    state = systemd.show(f"{name}.service", timeout_s=5)[f"{name}.service"]
    secrets = credential.known_to(state.name, document)
    runs = take(evidence.parts(state, described, document, secrets), deadline)
    folder = _new_folder(name, began)
    write(folder, runs, secrets)
    index = {
        "schema": 1,
        "unit": state.name,
        "state": f"{state.active}/{state.sub}",
        "invocation_id": state.invocation_id,
        "release": document.get("digest"),
        "reason": reason,
        "at": began,
        "took_s": round(time.time() - began, 1),
        "parts": {run.part.name: {"file": run.part.file, "took_s": run.took_s} for run in runs},
        "left_out": {run.part.name: run.why_left_out for run in runs if run.why_left_out},
    }
    atomic.write(folder / "index.json", redact.text(json.dumps(index, indent=1) + "\n", secrets), mode=0o600)
    _prune()
    return folder


def _new_folder(name: str, at: float) -> Path:
    """Named by the time in UTC, so that names sort by age."""
    moment = time.strftime("%Y-%m-%d_%H-%M-%S", time.gmtime(at))
    folder = paths.CAPTURES / f"{moment}.{int(at % 1 * 1000):03d}_{name}"
    for path in (paths.CAPTURES, folder):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    return folder


def write(folder: Path, runs: Sequence[Taken], secrets: list[str]) -> None:
    """One file for each that a part names; no secret in any."""
    for file in dict.fromkeys(run.part.file for run in runs):
        said = [line for run in runs if run.part.file == file for line in list(run.said)]
        if said:
            with open(os.open(folder / file, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as out:
                out.write(redact.text("\n".join(said) + "\n", secrets))


def _prune() -> None:
    for folder in sorted(paths.CAPTURES.iterdir())[:-_KEPT]:
        shutil.rmtree(folder, ignore_errors=True)


def sick(unit: dict[str, Any], document: dict[str, Any], within_s: float = 10.0) -> str | None:
    """Why the unit of the release, which should be active, does not serve as it should; None where it does.

    It takes up to twice within_s, s. A server still starting counts as sick: it does not serve.
    """
    service = f"{unit['name']}.service"
    state = systemd.show(service)[service]
    if state.active != "active":
        return f"{service} is {state.active}/{state.sub}, its process {state.ended}"
    try:
        ready = unit.get("checks", {}).get("ready", "/health")
        status = client.status(client.Server(release.base_url(unit)), ready, within_s)
        if status != 200:
            return f"{service}: {ready} {f'is {status}' if status else f'gives no answer within {within_s:.0f} s'}"
        return _wrong_answer(unit, document, within_s) if unit["role"] in _ANSWERING else None
    except (OSError, ValueError) as problem:
        return f"{service} cannot be asked: {problem}"


def _wrong_answer(unit: dict[str, Any], document: dict[str, Any], within_s: float) -> str | None:
    question = {
        "base": release.base_url(unit),
        "model": document["served_model_name"],
        "credential": credential.started_with(f"{unit['name']}.service", document),
        "gates": release.gates(document["digest"]),
    }
    answer = console.ask(within_s, question)
    return None if answer["ok"] else f"{unit['name']}.service: {answer['message']}"


def by_hand(reason: str) -> int:
    """`sglang-box capture`: evidence of every unit of the active release; prints each folder."""
    try:
        document = release.load(release.active() or "none")
        for unit in document["units"]:
            print(capture(unit, document, reason))
    except (release.Damaged, OSError) as problem:
        print(f"no evidence could be taken: {problem}", file=sys.stderr)
        return events.FAILED
    return events.OK
