"""`make demo`: the whole way, for real, on a systemd machine on this computer. Exit 0 only when all of it held."""

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

from sandbox.engine_choice import choose
from sandbox.errors import SandboxError
from sandbox.fleet import Sandbox
from sandbox.registries import wheel_folder
from serving.engine import Engine
from serving.plan import GROUP_DATA

HOST = "gpu1"
QUESTION = "What is 2+2? Answer with the number only."
ANSWER = "4"
KEPT = ("/opt/sglang/engines", "/opt/sglang/uv")
_STARTED = time.monotonic()


class Failed(Exception):
    """A step of the demo did not hold."""


def say(text: str) -> None:
    line = f"== {time.monotonic() - _STARTED:5.1f} s  {text}"
    print(f"\n\033[1m{line}\033[0m" if sys.stdout.isatty() else f"\n{line}", flush=True)


def run(*command: str, capture: bool = False) -> str:
    """Run a command where the reader sees it. Raises Failed."""
    print(f"$ {' '.join(command)}", flush=True)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if capture else None, text=True)
    if done.returncode:
        raise Failed(f"`{' '.join(command)}` ended with {done.returncode}")
    return done.stdout or ""


def sandbox(*words: str) -> None:
    run(sys.executable, "-m", "sandbox", *words)


def deploy(*words: str, capture: bool = False) -> str:
    pyinfra = str(Path(sys.executable).with_name("pyinfra"))
    return run(pyinfra, "inventory.py", "deploy.py", "-y", "--limit", HOST, *words, capture=capture)


def on_host(*command: str) -> str:
    """Output of a command on the host, over plain SSH: an eye that is not the playbook's. Raises Failed."""
    print(f"$ ssh {HOST} {shlex.join(command)}", flush=True)
    try:
        return Sandbox().host(HOST).run(command).stdout.strip()
    except subprocess.CalledProcessError as error:
        raise Failed(f"{command[0]} on {HOST} ended with {error.returncode}: {error.stderr.strip()}") from None


def ask() -> str:
    body = json.dumps({"model": "tiny", "temperature": 0, "messages": [{"role": "user", "content": QUESTION}]})
    url = "http://127.0.0.1:30000/v1/chat/completions"
    reply = on_host("curl", "-sS", url, "-H", "content-type: application/json", "-d", body)
    return str(json.loads(reply)["choices"][0]["message"]["content"])


def main_pid() -> str:
    return on_host("systemctl", "show", "--value", "--property=MainPID", "sglang-server")


def demo() -> None:
    choice = choose(wheel_folder())
    engine = Engine(GROUP_DATA / "engines", choice.engine).data
    say(f"engine {choice.engine}: {choice.why}")
    print(f"the first time it fetches {engine.download_gb} GB and takes {engine.installed_gb} GB of disk", flush=True)
    say("a bare host boots: systemd, sshd, eight stand-in GPUs (what an earlier one held is dropped)")
    sandbox("reset" if Sandbox().host(HOST).running else "up", HOST)
    say("deploy: from bare to a server that is proven to serve")
    deploy()
    say("ask it, with curl over ssh")
    answer = ask()
    print(f"{QUESTION}\n-> {answer}", flush=True)
    if answer != ANSWER:
        raise Failed(f"the answer is {answer!r}, not {ANSWER!r}")
    pid = main_pid()
    sandbox("keep", HOST, *KEPT)
    say("deploy again: nothing to change, one question to ask")
    totals = json.loads(deploy("--json", capture=True))["results"]["totals"]
    if totals["success"] or totals["error"] or main_pid() != pid:
        raise Failed(f"the second run was not a no-op: {totals}, pid {pid} -> {main_pid()}")
    print(f"changed 0, same server (pid {pid})", flush=True)
    say(f"done. {HOST} goes on serving: python3 -m sandbox ssh {HOST} sglang-box status;  make sandbox-down ends it")


def main() -> int:
    try:
        demo()
    except (Failed, SandboxError, KeyError, ValueError, IndexError) as problem:
        print(f"\ndemo failed: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
