"""What `sglang-box` says to the operator at the console.

Each command loads what it alone needs: `ask` is part of every run of the playbook.
"""

import json
import time
from typing import Any


def ask(within_s: float, question: dict[str, Any] | None) -> dict[str, Any]:
    """One real question: {"ok", "message"} and the answer's figures.

    question: {"base", "model", "credential", "gates"}; without it, what the active release would be asked.
    """
    from hostkit import client, credential

    try:
        asked = question or _question_of_the_active_release()
        server = client.Server(asked["base"], credential.api_key(asked))
        answer = client.ask(server, asked["model"], asked["gates"], within_s)
    except (client.WrongAnswer, OSError) as problem:
        return {"ok": False, "message": str(problem)}
    message = f"{asked['gates']['question']} -> {answer.text.strip()}"
    return {"ok": True, "message": message, "total_s": answer.total_s, "tokens": answer.tokens}


def _question_of_the_active_release() -> dict[str, Any]:
    """Raises OSError where there is none, or none that can be read."""
    from hostkit import release

    digest = release.active()
    if digest is None:
        raise OSError("no release is active on this host")
    try:
        document = release.load(digest)
    except release.Damaged as damage:
        raise OSError(str(damage)) from None
    return {
        "base": release.base_url(document["units"][-1]),
        "model": document["served_model_name"],
        "credential": document["credential"],
        "gates": release.gates(digest),
    }


def status() -> int:
    """Print what serves, with which release, on which GPUs; 0 when a unit of the playbook is active."""
    from hostkit import gpus, ours, release, systemd

    active, good = release.active(), release.last_good()
    print(f"active release   {active or 'none'}{' (last good)' if active and active == good else ''}")
    units = systemd.show(*ours.services())
    for unit in units.values():
        print(f"{unit.name:<24} {unit.active}/{unit.sub}, pid {unit.main_pid or '-'}, {unit.restarts} restarts")
    try:
        for card in gpus.gpus():
            print(f"GPU {card.index} {card.pci}  {card.memory_used_mib}/{card.memory_total_mib} MiB")
    except gpus.DriverError as error:
        print(f"GPUs unknown: {error}")
    return 0 if any(unit.active == "active" for unit in units.values()) else 1


def inspect(request: str) -> str:
    from hostkit import inspection

    began = time.monotonic()
    document = inspection.inspect(json.loads(request))
    return json.dumps({**document, "took_s": round(time.monotonic() - began, 3)})
