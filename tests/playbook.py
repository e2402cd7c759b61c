"""Runs the playbook as its user does, and looks at the host with commands of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

from sandbox import furnish
from sandbox.machine import Host

ROOT = Path(__file__).resolve().parent.parent
PYINFRA = Path(sys.prefix) / "bin" / "pyinfra"
# The sandbox's checkpoint on its hosts.
TINY = f"/srv/models/sandbox/tiny/{furnish.TINY}"
ENTRY = "http://127.0.0.1:30000"
QUESTION = "What is 2+2? Answer with the number only."


@dataclass(frozen=True)
class Run:
    """One run of pyinfra. Its report is what `--json` printed, {} when nothing was."""

    code: int
    report: dict[str, Any]
    text: str

    @property
    def changed(self) -> int:
        return int(self.report["results"]["totals"]["success"])

    @property
    def failed(self) -> int:
        return int(self.report["results"]["totals"]["error"])

    def lines_with(self, part: str) -> list[str]:
        return [line for line in self.text.splitlines() if part in line]


def deploy(host: Host, *words: str, project: Path = ROOT, limit_s: float = 500) -> Run:
    """`pyinfra inventory.py deploy.py -y --json` for this host alone."""
    return pyinfra("deploy.py", "-y", "--json", "--limit", host.name, *words, project=project, limit_s=limit_s)


def would_change(host: Host, *words: str, project: Path = ROOT) -> list[str]:
    """Names of the operations that a run would carry out, after `--dry`."""
    run = pyinfra("deploy.py", "--dry", "--json", "--limit", host.name, *words, project=project)
    assert run.code == 0, run.text
    plan = run.report["plan"]
    return [step["name"] for step in plan if step["hosts_with_change"] or step["hosts_with_conditional_change"]]


def pyinfra(*words: str, project: Path = ROOT, limit_s: float = 120, **environment: str) -> Run:
    done = subprocess.run(
        [str(PYINFRA), "inventory.py", *words],
        cwd=project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        env={**os.environ, **environment},
    )
    report = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    return Run(done.returncode, report, done.stderr + ("" if report else done.stdout))


def copy_of_project(folder: Path) -> Path:
    """A copy to edit, as an operator edits a clone."""
    left_out = ignore_patterns(".venv", ".git", "__pycache__", ".*_cache", "tests")
    return Path(copytree(ROOT, folder / "project", ignore=left_out))


def ask(host: Host, question: str = QUESTION) -> str:
    """The answer of the deployed endpoint, by curl on the host."""
    body = json.dumps({"model": "tiny", "temperature": 0, "messages": [{"role": "user", "content": question}]})
    header = "content-type: application/json"
    done = host.run(["curl", "-sS", "-m", "30", f"{ENTRY}/v1/chat/completions", "-H", header, "-d", body])
    return str(json.loads(done.stdout)["choices"][0]["message"]["content"])


def unit(host: Host, *properties: str, name: str = "sglang-server.service") -> list[str]:
    """Properties of a unit, as systemd itself gives them."""
    return [host.run(["systemctl", "show", "--value", f"--property={one}", name]).stdout.strip() for one in properties]


def main_pid(host: Host) -> str:
    return unit(host, "MainPID")[0]
