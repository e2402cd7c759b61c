"""nvidia-smi with the machine's own process ids, for drivers that show those of the outer machine to a container.

Asked through a socket, the real nvidia-smi runs outside; each process id in its answer about processes is
replaced by the one that the process has inside, and rows of other processes keep theirs.
"""

from __future__ import annotations

import json
import re
import socketserver
import subprocess
from collections.abc import Sequence
from pathlib import Path

FOLDER = "/run/gpu-host"
CLIENT = f"""\
#!/usr/bin/python3 -IS
import json, socket, sys

with socket.socket(socket.AF_UNIX) as link:
    link.connect("{FOLDER}/smi")
    link.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
    code, text = json.loads(link.makefile().read())
sys.stdout.write(text)
sys.exit(code)
"""
_APPS = "--query-compute-apps="


class Answer(socketserver.StreamRequestHandler):
    """One question."""

    def handle(self) -> None:
        words = json.loads(self.rfile.readline())
        done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, check=False)
        self.wfile.write(json.dumps([done.returncode, translated(words, done.stdout)]).encode())


def translated(words: Sequence[str], said: str) -> str:
    """The answer to a question for processes, with their ids as they are inside; any other answer as it is."""
    fields = next((word.removeprefix(_APPS).split(",") for word in words if word.startswith(_APPS)), [])
    rows = [line.split(", ") for line in said.splitlines()]
    if "pid" not in fields or any(len(row) != len(fields) for row in rows):
        return said
    place = fields.index("pid")
    return "".join(", ".join([*row[:place], inside(row[place]), *row[place + 1 :]]) + "\n" for row in rows)


def inside(pid: str) -> str:
    """The innermost of a process's ids, where it has one in another namespace; else as it is."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return pid
    ids = re.search(r"^NSpid:(.*)$", status, re.MULTILINE)
    return ids[1].split()[-1] if ids else pid


def serve(folder: Path) -> None:
    """Answer for ever on `folder`/smi."""
    path = folder / "smi"
    path.unlink(missing_ok=True)
    with socketserver.ThreadingUnixStreamServer(str(path), Answer) as server:
        path.chmod(0o666)
        server.serve_forever()
