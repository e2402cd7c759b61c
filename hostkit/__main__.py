"""sglang-box: what an operator at the console, and the playbook over SSH, can ask of this host."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

# Each command loads what it alone needs: `ask` and `inspect` are part of every run of the playbook.
Command = Callable[[argparse.Namespace], int]


def main(argv: list[str]) -> int:
    if argv[:1] == ["engine-parser"]:  # runs under the engine's Python, which has none of the rest
        from hostkit import engine_parser

        return engine_parser.main(argv[1:])
    options = _parser().parse_args(argv)
    run: Command = options.run
    if os.geteuid() != 0:
        print(f"sglang-box needs root: sudo sglang-box {' '.join(argv)}", file=sys.stderr)
        return 2
    return run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sglang-box", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Command, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    command("status", _status, "what serves, since when, on which GPUs; one line for each problem")
    ask = command("ask", _ask, "one real question to the serving entry port")
    ask.add_argument("question", nargs="?", help="(playbook) what to ask, as JSON")
    ask.add_argument("--within", type=float, default=5.0, metavar="SECONDS")
    command("evicted", _evicted, "which servers were evicted, and how each is started again")
    command("releases", _releases, "the releases on this host, with their verdicts")
    checkpoints = command("checkpoints", _checkpoints, "the checkpoints on this host, their size, and who needs them")
    checkpoints.add_argument("--remove", action="append", metavar="REPOSITORY@COMMIT", help="which nobody needs")
    checkpoints.add_argument("--models", action="append", metavar="FOLDER", help="where to look as well")
    command("start", _work, "start the active release and prove it")
    command("check", _check, "every byte of the checkpoint that serves, beside the server")
    command("stop", _work, "stop all that the playbook started, and show that the GPUs are free")
    rollback = command("rollback", _work, "go back to the release that was good before, or to a named one")
    rollback.add_argument("release", nargs="?")
    hold = command("hold", _hold, "stop, and stay stopped whoever boots or deploys this host, until --off")
    hold.add_argument("why", nargs="?", help="what the next one should know")
    hold.add_argument("--off", action="store_true", help="let go; starts nothing")
    inspect = command("inspect", _inspect, "the whole state of this host as JSON")
    inspect.add_argument("request", nargs="?", default='{"models": "/srv/models", "packages": []}')
    _add_looking_into(command)
    _add_internal(command)
    return parser


Adder = Callable[[str, Command, str], argparse.ArgumentParser]


def _add_looking_into(command: Adder) -> None:
    """What is for finding out why a server is sick, and for being told."""
    capture = command("capture", _capture, "keep evidence of the servers as they are now; prints the folders")
    capture.add_argument("--reason", default="by hand", metavar="TEXT")
    logs = command("logs", _logs, "what the servers logged, by default since they were started")
    logs.add_argument("--unit")
    logs.add_argument("--lines", type=_count, default=200, metavar="N")
    logs.add_argument("--since", metavar="TIME", help="as journalctl reads it: today, '2 hours ago'")
    logs.add_argument("--follow", action="store_true", help="go on as lines come")
    notify = command("notify", _notify, "tell whom the settings name that a unit failed")
    which = notify.add_mutually_exclusive_group(required=True)
    which.add_argument("unit", nargs="?", help="(units) the unit that failed")
    which.add_argument("--test", action="store_true", help="a test message, the way that a real one takes")


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines")
    return int(text)


def _add_internal(command: Adder) -> None:
    command("install", _install, "(playbook) put a release's files into /etc, restart nothing").add_argument("release")
    command("started", _started, "(units) note what a starting unit is started from").add_argument("unit")
    command("recover", _recover, "(units) bring back what served before an activation was cut off")
    command("put-credential", _put_credential, "(playbook) a key, from standard input").add_argument("name")
    command("put-notify", _put_notify, "(playbook) whom to tell, from standard input")
    command("came-up", _came_up, "(units) after a boot")
    command("goes-down", _goes_down, "(units) at a shutdown")
    command("manifest", _manifest, "(playbook) what a checkpoint was checked against").add_argument("folder")
    command("put-hub-token", _put_hub_token, "(playbook) the token for gated repositories, from standard input")
    start = command("start-job", _start_job, "(playbook) start or join a job, and say its id")
    start.add_argument("kind")
    start.add_argument("request")
    start.add_argument("--by", default="")
    follow = command("follow-job", _follow_job, "(playbook) events of a job")
    follow.add_argument("kind")
    follow.add_argument("job")
    follow.add_argument("--after", type=int, default=0)
    follow.add_argument("--wait", type=float, default=5.0, metavar="SECONDS")
    run = command("run-job", _run_job, "(units) body of a job")
    run.add_argument("kind")
    run.add_argument("job")


def _ask(options: argparse.Namespace) -> int:
    from hostkit import console

    answer = console.ask(options.within, json.loads(options.question) if options.question else None)
    print(json.dumps(answer))
    return 0 if answer["ok"] else 1


def _inspect(options: argparse.Namespace) -> int:
    from hostkit import console

    print(console.inspect(options.request))
    return 0


def _status(_: argparse.Namespace) -> int:
    from hostkit import console

    return console.status()


def _releases(_: argparse.Namespace) -> int:
    from hostkit import console

    return console.releases()


def _checkpoints(options: argparse.Namespace) -> int:
    from hostkit import console

    return console.checkpoints(options.models or [], options.remove or [])


def _evicted(_: argparse.Namespace) -> int:
    from hostkit import evicted

    print("\n".join(evicted.lines()))
    return 0


def _work(options: argparse.Namespace) -> int:
    from hostkit import console

    request = {"release": options.release} if options.command == "rollback" else {}
    return console.work(options.command, request)


def _hold(options: argparse.Namespace) -> int:
    from hostkit import console

    return console.let_go() if options.off else console.hold(options.why)


def _install(options: argparse.Namespace) -> int:
    from hostkit import console

    return console.install(options.release)


def _started(options: argparse.Namespace) -> int:
    from hostkit import jit_locks, started

    started.note(options.unit)
    jit_locks.sweep()
    return 0


def _recover(_: argparse.Namespace) -> int:
    from hostkit import recovery

    recovery.begin()
    return 0


def _put_credential(options: argparse.Namespace) -> int:
    from hostkit import credential

    credential.put_from_stdin(options.name)
    return 0


def _put_notify(_: argparse.Namespace) -> int:
    from hostkit import notify

    notify.put_from_stdin()
    return 0


def _came_up(_: argparse.Namespace) -> int:
    from hostkit import shutdowns

    print(shutdowns.came_up())
    return 0


def _goes_down(_: argparse.Namespace) -> int:
    from hostkit import shutdowns

    shutdowns.goes_down()
    return 0


def _check(_: argparse.Namespace) -> int:
    from hostkit import console

    return console.check()


def _manifest(options: argparse.Namespace) -> int:
    from hostkit import stamps

    print(stamps.manifest(Path(options.folder)))
    return 0


def _put_hub_token(_: argparse.Namespace) -> int:
    from hostkit import atomic, paths

    atomic.write(paths.HUB_TOKEN, sys.stdin.read(), mode=0o600)
    return 0


def _capture(options: argparse.Namespace) -> int:
    from hostkit import capture

    return capture.by_hand(options.reason)


def _logs(options: argparse.Namespace) -> int:
    from hostkit import logs

    return logs.show(options.unit, options.lines, options.since, options.follow)


def _notify(options: argparse.Namespace) -> int:
    from hostkit import notify

    return notify.test() if options.test else notify.notify(options.unit)


def _start_job(options: argparse.Namespace) -> int:
    from hostkit import events, jobs, work

    try:
        print(jobs.start(options.kind, json.loads(options.request), options.by, work.after(options.kind)))
    except jobs.Locked as locked:
        print(locked, file=sys.stderr)
        return events.LOCKED
    except (OSError, subprocess.SubprocessError) as problem:
        print(f"the job could not be started: {problem}", file=sys.stderr)
        return events.FAILED
    return 0


def _follow_job(options: argparse.Namespace) -> int:
    from hostkit import jobs

    print(json.dumps(jobs.follow(options.kind, options.job, options.after, options.wait)))
    return 0


def _run_job(options: argparse.Namespace) -> int:
    from hostkit import jobs, work

    return jobs.work(options.kind, options.job, work.body(options.kind))


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parent)]
    sys.exit(main(sys.argv[1:]))
