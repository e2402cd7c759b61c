"""What `sglang-box` says to the operator at the console.

Each command loads what it alone needs: `ask` is part of every run of the playbook.
"""

import json
import time
from typing import Any

from hostkit import release


def ask(within_s: float) -> dict[str, Any]:
    """One real question to the active release's entry port: {"ok", "message", ...} with the answer's figures."""
    from hostkit import client, credential

    digest = release.active()
    if digest is None:
        return {"ok": False, "message": "no release is active on this host"}
    try:
        document, gates = release.load(digest), release.gates(digest)
        server = client.Server(release.base_url(document["units"][-1]), credential.api_key(document))
        answer = client.ask(server, document["served_model_name"], gates, within_s)
    except (client.WrongAnswer, release.Damaged, OSError) as problem:
        return {"ok": False, "message": str(problem)}
    return {
        "ok": True,
        "message": f"{gates['question']} -> {answer.text.strip()}",
        "total_s": answer.total_s,
        "tokens": answer.tokens,
    }


def status() -> int:
    """Print what serves, with which release, on which GPUs; 0 when a unit of the playbook is active."""
    from hostkit import gpus, ours, systemd

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
