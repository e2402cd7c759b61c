"""The main process: parses, lets its children load, serves, and ends as the real one does."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from socket import create_server
from threading import Thread
from typing import Any, NoReturn

from sandbox.simulated.engine import arguments, info, resolved
from sandbox.simulated.engine.ending import Ending, child_failed_while_loading
from sandbox.simulated.engine.endpoints import Endpoints
from sandbox.simulated.engine.faults import Faults
from sandbox.simulated.engine.log import log, log_uvicorn, write
from sandbox.simulated.engine.manager import Manager
from sandbox.simulated.engine.processes import Tree
from sandbox.simulated.engine.server import Exchange, Server
from sandbox.simulated.engine.warm_up import warm_up

POLL_S = 0.05
OLD_NAME = """\
{path}:71: UserWarning: 'python -m sglang.launch_server' is still supported, but 'sglang serve' is the recommended \
entrypoint.
  Example: sglang serve --model-path <model> [options]
  warnings.warn(
"""


def main(argv: Sequence[str]) -> int:
    """Serve until a signal; the status is that of the process. Most ends are by SIGKILL and return nothing."""
    write(OLD_NAME.format(path=sys.argv[0]))
    given = arguments.parse(argv)
    faults = Faults.load(given)
    if (status := faults.number("exit")) is not None:
        return int(status)
    if "ignore-sigterm" in faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # before the children are made: it is theirs, too
    in_force = resolved.resolve(given)
    log(f"server_args={in_force}")
    tree, manager = _load(in_force, faults)
    points = Endpoints(in_force, given["launch_command"], faults, manager)
    server = _listen(points, in_force, tree)
    Thread(target=server.serve_forever, args=(POLL_S,), daemon=True).start()
    ending = Ending(tree, manager, faults)
    ending.handle_signals()
    Thread(target=warm_up, args=(in_force, faults.pace.warm_up_s, manager), daemon=True).start()
    return ending.wait(POLL_S)


def _load(in_force: Mapping[str, Any], faults: Faults) -> tuple[Tree, Manager]:
    log("Using default HuggingFace chat template with detected content format: string")
    tree = Tree(in_force, faults)
    signal.signal(signal.SIGQUIT, lambda *_: child_failed_while_loading(tree))
    tree.start()
    tree.wait_until_ready()
    log(f"Engine startup timings (s): {info.startup_timings()}")
    return tree, Manager(tree)


def _listen(points: Endpoints, in_force: Mapping[str, Any], tree: Tree) -> Server:
    """Bind, which the real engine tries only now."""
    log_uvicorn(f"Started server process [{os.getpid()}]")
    log_uvicorn("Waiting for application startup.")
    log("Using fallback token IDs for yes/no (9693/2152)")
    log_uvicorn("Application startup complete.")
    host, port = in_force["host"], in_force["port"]
    handler = type("Handler", (Exchange,), {"routes": points.routes(), "api_key": in_force["api_key"]})
    try:
        server = Server(host, port, handler)
    except OSError as error:
        reason = f"error while attempting to bind on address {(host, port)}: {(error.strerror or '').lower()}"
        log_uvicorn(f"[Errno {error.errno}] {reason}", "ERROR")
        log_uvicorn("Waiting for application shutdown.")
        _linger(tree)
    if in_force["disaggregation_mode"] == "prefill":  # where decode servers ask for what they need to fetch KV cache
        server.beside = create_server((host, in_force["disaggregation_bootstrap_port"]))
    log_uvicorn(f"Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
    return server


def _linger(tree: Tree) -> NoReturn:
    """Neither serve nor end, as the real engine does where its port is taken; it minds no SIGTERM then."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        tree.check()
        time.sleep(POLL_S)
