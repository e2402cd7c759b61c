"""nvidia-smi with the machine's own process ids, for drivers that show those of the outer machine to a container.

Asked through a socket, the real nvidia-smi runs outside; each process id in its answer about processes is
replaced by the one that the process has inside, and rows of other processes keep theirs.
"""

from __future__ import annotations

import json
import re
import socketserver
import subprocess
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
ROW = re.compile(r"(?<![\d.:])(\d+)(?=,|$)")


class Answer(socketserver.StreamRequestHandler):
    """One question."""

    def handle(self) -> None:
        words = json.loads(self.rfile.readline())
        done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, check=False)
        about_processes = any("compute-apps" in word for word in words)
        text = ROW.sub(inside, done.stdout) if about_processes else done.stdout
        self.wfile.write(json.dumps([done.returncode, text]).encode())


def inside(found: re.Match[str]) -> str:
    """The innermost of a process's ids, where it has one in another namespace; other numbers stay."""
    try:
        status = Path(f"/proc/{found[1]}/status").read_text()
    except OSError:
        return found[1]
    ids = re.search(r"^NSpid:(.*)$", status, re.MULTILINE)
    numbers = ids[1].split() if ids else []
    return numbers[-1] if len(numbers) > 1 else found[1]


def serve(folder: Path) -> None:
    """Answer for ever on `folder`/smi."""
    path = folder / "smi"
    path.unlink(missing_ok=True)
    with socketserver.ThreadingUnixStreamServer(str(path), Answer) as server:
        path.chmod(0o666)
        server.serve_forever()
