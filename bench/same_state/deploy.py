"""The end state of the playbook as pyinfra's own operations give it; bench/noop.py passes --data same_state=FILE."""

import json
from pathlib import Path

from pyinfra import host
from pyinfra.operations import apt, files, server, systemd

state = json.loads(Path(host.data.same_state).read_text())

apt.packages(name="Packages", packages=state["packages"], no_recommends=True)
server.user(
    name="Service user",
    user=state["user"]["name"],
    home=state["user"]["home"],
    shell=state["user"]["shell"],
    system=True,
    create_home=False,
    ensure_home=False,  # or it would give the folder to the user, against the line below, in every run
)
for folder in host.loop(state["folders"]):
    files.directory(
        name=f"Folder {folder['path']}",
        path=folder["path"],
        mode=folder["mode"],
        user=folder["owner"],
        group=folder["owner"],
    )
for file in host.loop(state["files"]):
    files.put(
        name=f"File {file['path']}",
        src=file["source"],
        dest=file["path"],
        mode=file["mode"],
        user="root",
        group="root",
    )
for link in host.loop(state["links"]):
    files.link(name=f"Link {link['path']}", path=link["path"], target=link["target"])
for unit in host.loop(state["units"]):
    # The playbook only enables its target; this operation would also start a running one in every run.
    running = None if unit.endswith(".target") else True
    systemd.service(name=f"Unit {unit}", service=unit, running=running, enabled=True)
