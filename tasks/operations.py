"""Operations, named by the end state they bring about."""

import json
import shlex
from collections.abc import Generator
from io import BytesIO
from typing import Any

from pyinfra import host, state
from pyinfra.api import FactBase, StringCommand, operation
from pyinfra.api.command import FileUploadCommand, PyinfraCommand, QuoteString
from pyinfra.api.host import Host
from pyinfra.api.state import State

from serving import manifest
from serving.secret import Secret
from serving.wanted import GROUP_DATA, ROOT
from tasks.follow import FollowJob


class Answered(FactBase[dict[str, Any]]):
    """The outcome of one real question to the entry port: {"ok", "message", "total_s", "tokens"}."""

    def command(self, hostkit: str, within_s: float, question: dict[str, Any]) -> str:
        return f"{shlex.join([hostkit, 'ask', '--within', str(within_s), json.dumps(question)])}; true"

    @staticmethod
    def default() -> dict[str, Any]:
        return {"ok": False, "message": "the question could not be asked"}

    def process(self, output: list[str]) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(output[-1])
        return answer


@operation()
def answers(
    hostkit: str, within_s: float, question: dict[str, Any], summary: list[str], now: bool
) -> Generator[StringCommand, None, None]:
    """The server gives the right answer to the profile's question within `within_s` seconds.

    It changes nothing: a wrong answer fails the run and points to `status`, and restarts nothing. Where it could not be
    asked `now`, before this run's other operations, it is asked after them and not in a dry run.
    """
    if not now and not state.is_executing:
        host.noop("asked at the end of the run")
        return
    answer = host.get_fact(Answered, hostkit=hostkit, within_s=within_s, question=question)
    if answer["ok"]:
        for line in [f"{answer['message']}  ({answer['tokens']} tokens, {answer['total_s']} s)", *summary]:
            host.log(line)
        host.noop(f"answered: {answer['message']}")
        return
    remedy = "pyinfra inventory.py commands/status.py shows what runs; journalctl --namespace=sglang shows why"
    text = f"no right answer: {answer['message']}. Nothing was restarted. {remedy}"
    yield StringCommand("echo", QuoteString(text), ">&2;", "exit", "1")


@operation(is_idempotent=False)
def job_done(hostkit: str, kind: str, request: dict[str, Any]) -> Generator[PyinfraCommand, None, None]:
    """The job ran to its end in a unit of its own on the host; its progress is shown here meanwhile."""
    yield FollowJob(hostkit, kind, request)


class BringManifest(PyinfraCommand):
    """Reads what the host found the hub to list, and writes it into the checkpoint's YAML on this machine."""

    def __init__(self, hostkit: str, folder: str, checkpoint: str) -> None:
        super().__init__()
        self.hostkit, self.folder, self.checkpoint = hostkit, folder, checkpoint

    def __repr__(self) -> str:
        return f"BringManifest({self.checkpoint})"

    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        command = shlex.join([self.hostkit, "manifest", self.folder])
        ok, output = host.run_shell_command(command, **connector_arguments)
        if ok:
            path = manifest.write(json.loads(output.stdout_lines[-1]), self.checkpoint, GROUP_DATA / "checkpoints")
            host.log(f"{path.relative_to(ROOT)} holds the manifest now: commit it")
        return ok


@operation()
def manifest_brought_back(hostkit: str, folder: str, checkpoint: str) -> Generator[PyinfraCommand, None, None]:
    """The checkpoint's YAML here has the sizes and hashes by which the host's files were checked."""
    yield BringManifest(hostkit, folder, checkpoint)


class PutSecret(PyinfraCommand):
    """Sends a secret through standard input: it is in no command line, no argument and no output."""

    def __init__(self, hostkit: str, secret: Secret) -> None:
        super().__init__()
        self.hostkit, self.secret = hostkit, secret

    def __repr__(self) -> str:
        return f"PutSecret({self.secret.path_on_host})"

    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:
        command = shlex.join([self.hostkit, *self.secret.command])
        ok, _ = host.run_shell_command(command, **{**connector_arguments, "_stdin": self.secret.content()})
        return ok


@operation()
def secret_present(hostkit: str, secret: Secret) -> Generator[PyinfraCommand, None, None]:
    """The secret's file on the host holds its content and is readable by root alone."""
    yield PutSecret(hostkit, secret)


@operation()
def whole_file(path: str, content: bytes, mode: str) -> Generator[PyinfraCommand | StringCommand, None, None]:
    """The file of root's holds this content: written beside, synced, and renamed, so that it is never there in part.

    pyinfra's own put writes in place. The caller has seen that the file differs.
    """
    folder, fresh = path.rpartition("/")[0], f"{path}.new"
    yield StringCommand("mkdir", "-p", QuoteString(folder))
    yield FileUploadCommand(BytesIO(content), fresh, remote_temp_filename=host.get_temp_filename(fresh))
    finish = [
        ["chown", "root:root", fresh],
        ["chmod", mode, fresh],
        ["sync", fresh],
        ["mv", "-fT", fresh, path],
        ["sync", folder],
    ]
    yield StringCommand(" && ".join(map(shlex.join, finish)))
