"""Stages the release and takes the host to it, where the host is not there yet."""

import json
import shlex

from pyinfra import host, state
from pyinfra.operations import server

from serving import beside, drift, unmanaged
from serving.paths import OTHER_UNITS
from serving.plan import Plan, hostkit_path
from serving.release import Release
from serving.schemas import Server
from serving.unmanaged import owner_of
from tasks import bundle, put
from tasks.operations import answers, job_done
from tasks.step import step

ANSWER_WITHIN_S = 5.0


@step("Release")
def staged(release: Release) -> None:
    """Only files under the release's own folder: nothing that runs changes."""
    found = release.plan.state
    for path, text in ((release.path, release.document), (release.gates_path, release.gates)):
        name = f"Stage {path.rpartition('/')[2]} of release {release.digest}"
        put.where_different(found, path, text.encode(), "644", name)


@step("Activation")
def active(release: Release) -> None:
    """Restart is derived from the machine: from what each process was started from, never from this run's changes."""
    found = release.plan.state
    units, differences = drift.to_start(release, found), drift.to_put_right(release, found)
    targets = unmanaged.to_evict(release.plan)
    if units or targets or not drift.is_proven(release, found):
        job_done(
            name=f"Activate release {release.digest}: {_evicts(targets)}{_effect(release, units)}",
            hostkit=hostkit_path(bundle.digest()),
            kind="activation",
            request={
                "release": release.digest,
                "gates": release.plan.wanted.site.gates,
                "evict": [unmanaged.target(server) for server in targets],
            },
        )
    elif differences:
        server.shell(
            name=f"Put right, without a restart: {'; '.join(differences)}",
            commands=[f"{hostkit_path(bundle.digest())} install {release.digest}"],
        )


@step("Question")
def answering(release: Release) -> None:
    plan, hostkit = release.plan, hostkit_path(bundle.digest())
    answers(
        name="Ask the server one real question",
        hostkit=hostkit,
        within_s=ANSWER_WITHIN_S,
        question={
            "base": plan.entry.base_url,
            "model": plan.wanted.profile.served_model_name,
            "credential": plan.wanted.api_key.path_on_host if plan.wanted.api_key else None,
            "gates": plan.wanted.profile.gates.model_dump(),
        },
        summary=_summary(plan),
        now=not state.ops[host],
    )


def _summary(plan: Plan) -> list[str]:
    """What an operator needs to use the server: where it is, how to reach it, a question to paste, its logs."""
    port, model = plan.entry.port, plan.wanted.profile.served_model_name
    address = plan.entry.base_url.removeprefix("http://").rpartition(":")[0]
    question = json.dumps(
        {"model": model, "messages": [{"role": "user", "content": plan.wanted.profile.gates.question}]}
    )
    file = plan.wanted.site.api_key_file
    json_type = "'content-type: application/json'"
    key = f" -H @<(printf 'Authorization: Bearer %s' \"$(cat {file})\")" if file else ""
    return [
        f"endpoint   {plan.entry.base_url}/v1 on {host.name}, model {model}",
        f"from here  ssh -L {port}:{address}:{port} {host.name}",
        f"ask        curl -s 127.0.0.1:{port}/v1/chat/completions{key} -H {json_type} -d {shlex.quote(question)}",
        f"logs       journalctl --namespace=sglang --unit={plan.entry.name} --follow",
    ]


def _evicts(targets: list[Server]) -> str:
    named = [f"pid {server.pid} ({owner_of(server)})" for server in targets]
    return f"evicts {', '.join(named)}, " if named else ""


def _effect(release: Release, units: list[str]) -> str:
    """What the activation means to who waits for tokens."""
    if not units:
        return "the server runs from it and is only proven again"
    found = release.plan.state
    record = found.records.get(release.plan.wanted.profile_name, {})
    past = f"about {record['start_s']:.0f} s, as last time" if "start_s" in record else "the first of this profile here"
    if beside.moves(release):
        return f"starts {', '.join(units)} beside what serves, which stops when the router sends to them ({past})"
    running = [name for name, unit in found.units.items() if unit.active == "active" and name not in OTHER_UNITS]
    goes_on = {unit.service for unit in release.plan.units} - set(units) if found.active == release.digest else set()
    stops = [name for name in running if name not in goes_on]
    if not stops:
        others = f" beside {', '.join(sorted(goes_on))}" if goes_on else ""
        return f"starts {', '.join(units)}{others} ({past})"
    return f"tokens stop: stops {', '.join(stops)}, starts {', '.join(units)} ({past})"
