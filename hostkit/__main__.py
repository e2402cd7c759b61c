"""sglang-box: what an operator at the console, and the playbook over SSH, can ask of this host."""

import argparse
import json
import sys
from pathlib import Path

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
    from hostkit import credential, evicted, jobs, started

    if options.command == "status":
        return console.status()
    if options.command == "evicted":
        print("\n".join(evicted.lines()))
    elif options.command == "started":
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
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sglang-box", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("status", help="what serves, since when, on which GPUs")
    commands.add_parser("evicted", help="which servers were evicted, and how each is started again")
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
    for name, text in (("start-job", "start or join"), ("follow-job", "events of"), ("run-job", "body of")):
        job = commands.add_parser(name, help=f"(playbook) {text} a job")
        job.add_argument("kind", choices=_JOBS)
        if name == "start-job":
            job.add_argument("request")
        if name == "follow-job":
            job.add_argument("--after", type=int, default=0)
            job.add_argument("--wait", type=float, default=5.0, metavar="SECONDS")
    return parser


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
