"""Servers that the playbook did not start, in a table: who they are, what they hold, whose they are."""

from collections.abc import Sequence

from pyinfra import host
from rich.console import Console
from rich.table import Table

from serving.schemas import HostState, Server, age
from serving.unmanaged import cards_of, owner_of, ports_of, short_command


def show(title: str, servers: Sequence[Server], state: HostState) -> None:
    """Print one row a server; nothing where there is none."""
    if not servers:
        return
    table = Table(title=f"{host.name}: {title}", title_justify="left")
    for column in ("pid", "user", "age", "GPU", "GiB", "port"):
        table.add_column(column, no_wrap=True)
    for column in ("owner", "command"):
        table.add_column(column, overflow="fold")
    for server in servers:
        table.add_row(*_row(server, state))
    Console(stderr=True).print(table)


def _row(server: Server, state: HostState) -> list[str]:
    memory = f"{server.gib:.1f}" if server.gpus else "-"
    cards, ports = ",".join(cards_of(server, state)) or "-", ",".join(ports_of(server)) or "-"
    return [
        str(server.pid),
        server.user,
        age(server.age_s),
        cards,
        memory,
        ports,
        owner_of(server),
        short_command(server),
    ]
