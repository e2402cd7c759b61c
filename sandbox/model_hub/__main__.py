"""Serves a folder of repositories: python3 -m sandbox.model_hub FOLDER [--port 0] [--state DIR] ...

The first line printed is JSON: {"endpoint": "http://127.0.0.1:PORT", "cdn": "http://127.0.0.2:PORT", "pid": ...}. The
folder named by --state holds faults.json, which may change while the hub runs (sandbox/model_hub/faults.py), and
requests.jsonl, a line for each request answered: method, path, status, range [start, end), bytes sent, fault, token.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from sandbox.model_hub.context import make_context
from sandbox.model_hub.server import listen


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python3 -m sandbox.model_hub", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("folder", type=Path, help="holds <owner>/<name>/ for each repository")
    top.add_argument("--host", default="127.0.0.1", help="address to listen at")
    top.add_argument("--port", type=int, default=0, help="0: any free one")
    # Clients tell the hub from its CDN by the host: on the same one they would take the token along.
    top.add_argument("--cdn-host", default="127.0.0.2", help="address of its CDN, another than the hub's")
    top.add_argument("--state", type=Path, help="folder of faults.json and requests.jsonl")
    top.add_argument("--rate", type=float, default=0, help="bytes/s that all connections share; 0: no limit")
    top.add_argument("--delay-ms", type=float, default=0, help="before each answer and each new connection")
    top.add_argument("--link-s", type=float, default=3600, help="how long a link to the CDN holds")
    top.add_argument("--page", type=int, default=1000, help="entries of a page of a listing")
    return top


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    if not options.folder.is_dir():
        print(
            f"{options.folder} is no folder: name one that holds <owner>/<name>/ for each repository", file=sys.stderr
        )
        return 2
    settings = {"delay_s": options.delay_ms / 1000, "link_s": options.link_s, "page": options.page}
    context = make_context(options.folder, options.state, rate=options.rate, **settings)
    try:
        hub = listen(context, options.host, options.port, options.cdn_host)
    except OSError as problem:
        print(f"cannot listen at {options.host}:{options.port}: {problem}; choose another --port", file=sys.stderr)
        return 2
    context.store.hash_all()
    endpoint = f"http://{options.host}:{hub.server_address[1]}"
    print(json.dumps({"endpoint": endpoint, "cdn": context.cdn, "pid": os.getpid()}), flush=True)
    hub.serve_forever()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
