"""The playbook against this computer's own GPU. As root, with the controller's Python: -m sandbox.gpu_host COMMAND

up          boot a machine that sees the GPUs
probe       whether it sees them as the playbook needs it
scenarios   deploy, deploy again, switch, fail, kill, drain ...; what was seen goes to --out
down        power it off
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import traceback
from argparse import RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandbox import commands
from sandbox.errors import SandboxError
from sandbox.gpu_host import engine, evidence, memory, probe, translate
from sandbox.gpu_host.machine import GpuHost
from sandbox.gpu_host.project import Project
from sandbox.gpu_host.scenarios import SCENARIOS, Bench, Scenario

FOLDER = Path("/var/tmp/sglang-gpu-host")
ENGINE = "sglang-0.5.23"
# Triton builds its launchers with a C compiler and Python's headers, at the first start of an engine.
COMPILERS = ("gcc", "g++", "python3-dev")
_BEGAN = time.monotonic()


def say(line: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')} +{time.monotonic() - _BEGAN:5.1f} s] {line}", flush=True)


def up(host: GpuHost, options: argparse.Namespace) -> int:
    """Boot on a fresh disk, or with --keep on the one it has; without --tree over the sandbox's base tree."""
    binds = dict(_pair(bind) for bind in options.bind)
    if options.translate:
        (host.folder / "run").mkdir(parents=True, exist_ok=True)
        binds[str(host.folder / "run")] = translate.FOLDER
    took = host.up(options.tree or _tree(), binds, options.stand_in, options.keep)
    say(f"booted in {took:.1f} s" if took else "runs already")
    if options.translate and took:
        _translate(host)
    if not options.tree and not options.keep:
        host.run(["apt-get", "update", "-q"], limit_s=120)
        host.run(["apt-get", "install", "-qy", "--no-install-recommends", *COMPILERS], limit_s=300, check=True)
    return 0


def run_probe(host: GpuHost, options: argparse.Namespace) -> int:
    """Print the facts; exit 3 where the driver lists processes under ids that they don't have inside."""
    found = probe.facts(host, options.python)
    text = json.dumps(found, indent=1)
    print(text, flush=True)
    _out(options).joinpath("probe.json").write_text(text)
    return 0 if found["processes"]["right"] else 3


def scenarios(host: GpuHost, options: argparse.Namespace) -> int:
    """Play them in order; one that fails, or for which no time is left, does not keep the others from it."""
    out, project = _out(options), Project(host)
    left = lambda: options.within - (time.monotonic() - _BEGAN)  # noqa: E731
    if not options.goes_on:
        _prepare(host, project, options)
    bench = Bench(host, project, out, options.stand_in, left)
    results: dict[str, Any] = _results(out) if options.goes_on else {}
    played = [name for name, result in results.items() if "left_out" not in result]
    with memory.sampled(out / "memory.csv"):
        for scenario in SCENARIOS:
            if scenario.name in options.only or (not options.only and scenario.name not in played):
                results[scenario.name] = _played(scenario, bench, results)
                evidence.summary(out / "summary.json", results)
    evidence.collect(host, out)
    evidence.pack(out, out.with_suffix(".tar.gz"))
    wrong = [name for name, result in results.items() if not result["ok"]]
    say(f"not as they should be: {', '.join(wrong)}" if wrong else "all as they should be")
    return 1 if wrong else 0


def down(host: GpuHost, _: argparse.Namespace) -> int:
    """Power off."""
    host.down()
    return 0


def serve_translation(host: GpuHost, _: argparse.Namespace) -> int:
    """(internal) Answer for nvidia-smi inside."""
    translate.serve(host.folder / "run")
    return 0


def _prepare(host: GpuHost, project: Project, options: argparse.Namespace) -> None:
    project.make()
    name = ENGINE
    if options.packages:
        say("laying down the prepared engine")
        name = engine.put(host, project, engine.Prepared(options.packages, options.base))
    project.put_profiles(name, probe.compute_capability(host), options.stand_in)
    say(f"engine {name}")


def _played(scenario: Scenario, bench: Bench, results: dict[str, Any]) -> dict[str, Any]:
    nothing_serves = scenario is not SCENARIOS[0] and not results.get(SCENARIOS[0].name, {}).get("ok")
    if nothing_serves or bench.left() < scenario.needs_s:
        why = "nothing was ever served" if nothing_serves else f"{bench.left():.0f} s are not enough"
        say(f"{scenario.name}: left out, {why}")
        return {"ok": False, "left_out": why}
    say(f"{scenario.name}: {scenario.play.__doc__}")
    began = time.time()
    try:
        seen = scenario.play(bench)
        result = {"ok": seen.ok, "began": began, "took_s": round(time.time() - began, 1), **seen.facts}
    except Exception:  # whatever it is, the next one is played
        result = {
            "ok": False,
            "began": began,
            "took_s": round(time.time() - began, 1),
            "problem": traceback.format_exc(),
        }
    say(f"{scenario.name}: {'as it should be' if result['ok'] else 'NOT AS IT SHOULD BE'}: {json.dumps(result)[:3000]}")
    return result


def _results(out: Path) -> dict[str, Any]:
    path = out / "summary.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _out(options: argparse.Namespace) -> Path:
    options.out.mkdir(parents=True, exist_ok=True)
    out: Path = options.out
    return out


def _tree() -> Path:
    from sandbox import tree

    commands.require_commands()
    return tree.root_of(tree.ensure(say))


def _translate(host: GpuHost) -> None:
    """Inside, `nvidia-smi` asks outside, before /usr/bin in every PATH; the server of it outlives this command."""
    client = Path(f"{host.view}/usr/local/bin/nvidia-smi")
    client.write_text(translate.CLIENT)
    client.chmod(0o755)
    words = [sys.executable, "-m", "sandbox.gpu_host", "--folder", str(host.folder), "translate"]
    with (host.folder / "translate.log").open("a") as log:  # and not the caller's, which would wait for its end
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def _pair(bind: str) -> tuple[str, str]:
    source, _, target = bind.partition(":")
    return source, target or source


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        "python -m sandbox.gpu_host", description=__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    top.add_argument("--folder", type=Path, default=FOLDER, help="where its disk and keys lie")
    top.add_argument("--stand-in", action="store_true", help="a rehearsal without a GPU: the sandbox's stand-in card")
    verbs = top.add_subparsers(required=True, metavar="COMMAND")
    boot = _verb(verbs, "up", up)
    boot.add_argument("--tree", type=Path, help="a base tree that is there already, with compilers in it")
    boot.add_argument("--keep", action="store_true", help="boot the disk that it has, unless it runs")
    boot.add_argument("--bind", action="append", default=[], metavar="SRC[:DST]", help="read-only, may be given again")
    boot.add_argument(
        "--translate", action="store_true", help="process ids of nvidia-smi: from the outer to the inner ones"
    )
    look = _verb(verbs, "probe", run_probe)
    look.add_argument("--python", default="/opt/torch/.venv/bin/python3", help="an interpreter with torch, inside")
    play = _verb(verbs, "scenarios", scenarios)
    play.add_argument("only", nargs="*", metavar="NAME", help=", ".join(one.name for one in SCENARIOS))
    play.add_argument("--within", type=float, default=3600, metavar="S", help="seconds for all of them")
    play.add_argument(
        "--goes-on", action="store_true", help="with what an earlier call left: what was played is not played again"
    )
    play.add_argument(
        "--packages", type=Path, help="site-packages of a prepared engine; else the playbook installs one"
    )
    play.add_argument("--base", type=Path, help="the site-packages with torch that it builds on")
    for verb in (look, play):
        verb.add_argument("--out", type=Path, default=Path("gpu-host-results"))
    _verb(verbs, "down", down)
    _verb(verbs, "translate", serve_translation)
    return top


def _verb(verbs: Any, name: str, command: Any) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=command.__doc__, description=command.__doc__)
    verb.set_defaults(command=command)
    return verb


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    try:
        commands.require_root()
        options.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return int(options.command(GpuHost(options.folder.resolve()), options))
    except SandboxError as error:
        print(f"gpu_host: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
