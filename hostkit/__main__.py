"""sglang-box: what an operator at the console, and the playbook over SSH, can ask of this host."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

_JOBS = ("engine", "checkpoint", "activation")


def main(argv: list[str]) -> int:
    if argv[:1] == ["engine-parser"]:  # runs under the engine's Python, which has none of the rest
        from hostkit import engine_parser

        return engine_parser.main(argv[1:])
    options = _parser().parse_args(argv)
    from hostkit import console

    if options.command == "ask":
        answer = console.ask(options.within, json.loads(options.question) if options.question else None)
        print(json.dumps(answer))
        return 0 if answer["ok"] else 1
    from hostkit import credential, jobs, started

    if options.command == "status":
        return console.status()
    if options.command == "started":
        started.note(options.unit)
    elif options.command == "inspect":
        print(console.inspect(options.request))
    elif options.command == "start-job":
        return _start_job(options.kind, options.request)
    elif options.command == "follow-job":
        jobs.print_json(jobs.follow(options.kind, options.after, options.wait))
    elif options.command == "run-job":
        return _run_job(options.kind)
    elif options.command == "install":
        return _install(options.release)
    elif options.command == "put-credential":
        credential.put_from_stdin()
    elif options.command in ("capture", "logs", "notify", "put-notify"):
        return _console(options)
    return 0


def _console(options: argparse.Namespace) -> int:
    from hostkit import capture, logs, notify

    if options.command == "capture":
        return capture.by_hand(options.reason)
    if options.command == "logs":
        return logs.show(options.unit, options.lines, options.since, options.follow)
    if options.command == "notify":
        return notify.test() if options.test else notify.notify(options.unit)
    notify.put_from_stdin()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sglang-box", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("status", help="what serves, since when, on which GPUs")
    ask = commands.add_parser("ask", help="one real question to the serving entry port")
    ask.add_argument("question", nargs="?", help="(playbook) what to ask, as JSON")
    ask.add_argument("--within", type=float, default=5.0, metavar="SECONDS")
    inspect = commands.add_parser("inspect", help="the whole state of this host as JSON")
    inspect.add_argument("request", nargs="?", default='{"models": "/srv/models", "packages": []}')
    install = commands.add_parser("install", help="put a release's files into /etc without a restart")
    install.add_argument("release")
    started = commands.add_parser("started", help="(units) note what a starting unit is started from")
    started.add_argument("unit")
    commands.add_parser("put-credential", help="(playbook) the engine's credential, from standard input")
    _add_looking_into(commands)
    for name, text in (("start-job", "start or join"), ("follow-job", "events of"), ("run-job", "body of")):
        job = commands.add_parser(name, help=f"(playbook) {text} a job")
        job.add_argument("kind", choices=_JOBS)
        if name == "start-job":
            job.add_argument("request")
        if name == "follow-job":
            job.add_argument("--after", type=int, default=0)
            job.add_argument("--wait", type=float, default=5.0, metavar="SECONDS")
    return parser


def _add_looking_into(commands: Any) -> None:
    """What is for finding out why a server is sick, and for being told."""
    capture = commands.add_parser("capture", help="keep evidence of the servers as they are now; prints the folders")
    capture.add_argument("--reason", default="by hand", metavar="TEXT")
    logs = commands.add_parser("logs", help="what the servers logged, by default since they were started")
    logs.add_argument("--unit")
    logs.add_argument("--lines", type=_count, default=200, metavar="N")
    logs.add_argument("--since", metavar="TIME", help="as journalctl reads it: today, '2 hours ago'")
    logs.add_argument("--follow", action="store_true", help="go on as lines come")
    notify = commands.add_parser("notify", help="tell whom the settings name that a unit failed")
    which = notify.add_mutually_exclusive_group(required=True)
    which.add_argument("unit", nargs="?", help="(units) the unit that failed")
    which.add_argument("--test", action="store_true", help="a test message, the way that a real one takes")
    commands.add_parser("put-notify", help="(playbook) whom to tell, from standard input")


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines")
    return int(text)


def _run_job(kind: str) -> int:
    from hostkit import activation, installer, jobs, verify

    bodies: dict[str, jobs.Job] = {
        "engine": installer.install,
        "checkpoint": verify.verify,
        "activation": activation.activate,
    }
    return jobs.work(kind, bodies[kind])


def _start_job(kind: str, request: str) -> int:
    from hostkit import events, jobs

    try:
        jobs.start(kind, json.loads(request))
    except jobs.Locked as locked:
        print(locked, file=sys.stderr)
        return events.LOCKED
    return 0


def _install(digest: str) -> int:
    from hostkit import events, jobs, release

    try:
        with jobs.host_lock("install"):
            release.install(release.load(digest))
            release.set_active(digest)
    except (jobs.Locked, release.Damaged) as problem:
        print(problem, file=sys.stderr)
        return events.LOCKED if isinstance(problem, jobs.Locked) else events.REFUSED
    return 0


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parent)]
    sys.exit(main(sys.argv[1:]))
