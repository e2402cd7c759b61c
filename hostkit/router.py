"""What the router knows of its workers, and how it is told of one.

Its /health is always 200, and /readiness is so as soon as one of several workers is healthy (sglang-router 0.3.2,
measured): what it can serve is seen in /workers alone.
"""

from collections import Counter
from typing import Any

from hostkit import client
from hostkit.client import Server

_ASKED_WITHIN_S = 10.0


def known(server: Server) -> list[dict[str, Any]]:
    """Its workers: url, worker_type, is_healthy, id. Raises client.WrongAnswer."""
    found: list[dict[str, Any]] = client.get_json(server, "/workers", _ASKED_WITHIN_S)["workers"]
    return found


def healthy(server: Server) -> Counter[str]:
    """How many healthy workers of each role it counts. Raises client.WrongAnswer."""
    return Counter(worker["worker_type"] for worker in known(server) if worker["is_healthy"])


def counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {role}" for role, count in sorted(counts.items())) or "none"


def missing(server: Server, workers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of a release's workers that it does not know. Raises client.WrongAnswer."""
    urls = {worker["url"] for worker in known(server)}
    return [worker for worker in workers if worker["url"] not in urls]


def send_to(server: Server, workers: list[dict[str, Any]]) -> None:
    """Tell it of those that it does not know; once it counts all of them as healthy, have it forget all others.

    `workers` as the release describes them. Raises client.WrongAnswer.
    """
    for worker in missing(server, workers):
        add(server, worker)
    found, wanted = known(server), {worker["url"] for worker in workers}
    if wanted <= {worker["url"] for worker in found if worker["is_healthy"]}:
        for url in {worker["url"] for worker in found} - wanted:
            remove(server, url)


def add(server: Server, worker: dict[str, Any]) -> None:
    """Tell it of a worker of the release, which it takes in once that is healthy. Raises client.WrongAnswer."""
    body = {"url": worker["url"], "worker_type": worker["role"]}
    if worker.get("bootstrap_port"):
        body["bootstrap_port"] = worker["bootstrap_port"]
    client.change(server, "POST", "/workers", _ASKED_WITHIN_S, body)


def remove(server: Server, url: str) -> None:
    """Have it send nothing more to a worker; what is under way there goes on. Raises client.WrongAnswer."""
    for worker in known(server):
        if worker["url"] == url:
            client.change(server, "DELETE", f"/workers/{worker['id']}", _ASKED_WITHIN_S)
