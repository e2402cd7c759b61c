"""The sandbox's hosts as pyinfra's inventory wants them."""

from __future__ import annotations

from pathlib import Path

from sandbox import hub, registries, ssh
from sandbox.engine_choice import choose
from sandbox.fleet import Sandbox
from sandbox.machine import Host

DEFAULT_HOST = "gpu1"
# Takes the place of the real one, so that connecting fails at once with a sentence instead of a timeout.
NOT_RUNNING = Path(__file__).with_name("not-running.ssh_config")


def hosts() -> list[tuple[str, dict[str, object]]]:
    """Return the running hosts, each with the data that pyinfra's SSH connector needs.

    When none runs it is the usual host, with data that make pyinfra say how to start it.
    """
    running = [(host.name, _data(host)) for host in Sandbox().running()]
    return running or [(DEFAULT_HOST, {"ssh_config_file": str(NOT_RUNNING), "ssh_user": "root"})]


def _data(host: Host) -> dict[str, object]:
    data: dict[str, object] = {
        "ssh_config_file": str(ssh.config(host.place)),
        "ssh_user": "root",
        "ssh_key": str(ssh.client_key(host.place)),
        "ssh_known_hosts_file": str(ssh.known_hosts(host.place)),
        "ssh_strict_host_key_checking": "yes",
    }
    endpoint = hub.endpoint(host.place)
    data["hub_mirrors"] = [endpoint] if endpoint else []
    wheels = _wheels(host)
    if wheels:
        data["find_links"] = registries.WHEELS_INSIDE
    data["engine"] = choose(wheels).engine
    return data


def _wheels(host: Host) -> Path | None:
    """The folder of this machine that the host sees as its wheels."""
    bound = host.record.binds.items()
    return next((Path(outer) for outer, inside in bound if inside == registries.WHEELS_INSIDE), None)
