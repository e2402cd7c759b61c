"""The sandbox as a whole: every change of power state goes through here, one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox import cgroups, hub, layers, network, registries, ssh, tree
from sandbox.commands import Say, require_commands, require_root
from sandbox.errors import BadRequest, HostNotRunning, NothingToBoot
from sandbox.layers import Kept
from sandbox.machine import Host
from sandbox.place import Place


def silent(_line: str) -> None:
    """Say nothing: the default for callers that are programs."""


class Sandbox:
    """All hosts of one state folder. Every method raises SandboxError with the remedy in its message."""

    def __init__(self, folder: Path | None = None, say: Say = silent) -> None:
        """Use `folder` as state, or what SANDBOX_DIR names; `say` gets lines about progress."""
        self.place = Place(folder.resolve()) if folder else Place.current()
        self.say = say

    def host(self, name: str) -> Host:
        """Return a host by name, whether it exists or not."""
        return Host(self.place, name)

    def known(self) -> list[Host]:
        """Return the hosts that have a disk."""
        return [self.host(name) for name in self.place.known_hosts()]

    def running(self) -> list[Host]:
        """Return the hosts that run."""
        return [host for host in self.known() if host.running]

    def up(self, *names: str, keep: bool = False, binds: Mapping[str, str] | None = None) -> list[Host]:
        """Have the hosts run: a fresh disk for each that does not run yet, or the one it has with `keep`.

        `binds` maps outer paths to absolute paths inside, read-only; a host remembers them.
        """
        self._require()
        checked = _checked(binds or {})
        hosts = [self.host(name) for name in names]
        with self.place.locked():
            start = [host for host in hosts if not host.running]
            if keep:
                self._refuse_without_disk(start)
            else:
                self._fresh_disks(start, checked)
            self._power_on(start)
        return hosts

    def down(self, *names: str) -> list[str]:
        """Shut the hosts down cleanly, all when none is named; returns the names of those that ran."""
        require_root()
        with self.place.locked():
            hosts = self._chosen(names)
            ran = [host.name for host in hosts if host.running]
            for host in hosts:
                host.request_power_off()
            for host in hosts:
                host.finish_power_off()
            self._leave_when_empty()
        return ran

    def reset(self, *names: str) -> list[Host]:
        """Pull the plug, drop what the hosts wrote, and boot them fresh with the binds they had."""
        self._require()
        hosts = [self.host(name) for name in names]
        with self.place.locked():
            for host in hosts:
                host.clear()
                self._fresh_disks([host], host.record.binds, Path(host.record.tree))
            self._power_on(hosts)
        return hosts

    def powercut(self, *names: str) -> None:
        """Pull the plug of the hosts; `up(..., keep=True)` switches them on again."""
        require_root()
        with self.place.locked():
            for host in self._chosen(names):
                host.clear()
            self._leave_when_empty()

    def reboot(self, *names: str) -> None:
        """Reboot the hosts from inside and wait until each answers again."""
        require_root()
        for name in names:
            self.host(name).restart()

    def keep(self, name: str, *paths: str) -> Kept:
        """Keep what the running host installed under `paths` for every host that boots fresh later."""
        require_root()
        host = self.host(name)
        with self.place.locked():
            if not host.running:
                raise HostNotRunning(name)
            return layers.keep(self.place, Path(host.record.tree), host.view, paths)

    # -- private

    def _require(self) -> None:
        require_root()
        require_commands()

    def _fresh_disks(self, hosts: Sequence[Host], binds: Mapping[str, str], base: Path | None = None) -> None:
        """Give the hosts fresh disks, on `base` if it is a base tree, else on that of today's recipe."""
        if not hosts:
            return
        if base is None or not tree.is_complete(base):
            base = tree.ensure(self.say)
        if not self.running():
            layers.drop_stale(self.place)
        ssh.make_keys(self.place)
        wheels = registries.wheel_folder()
        bound = {**binds, **({str(wheels): registries.WHEELS_INSIDE} if wheels else {})}
        for host in hosts:
            host.folder.mkdir(parents=True, exist_ok=True)
            host.fresh_disk(base, bound)

    def _refuse_without_disk(self, hosts: Sequence[Host]) -> None:
        for host in hosts:
            if not host.record.tree:
                raise NothingToBoot(host.name)

    def _power_on(self, hosts: Sequence[Host]) -> None:
        if hosts:
            network.open_bridge(self.place)
            ssh.write_config(self.place, {host.name: host.address for host in self.known()})
        for host in hosts:
            host.power_on()
        if self.running():
            hub.start(self.place)  # also one that died while hosts ran
        for host in hosts:
            host.wait()

    def _chosen(self, names: Sequence[str]) -> list[Host]:
        """Return the named hosts, or all, those included of which only remains are left."""
        prefix = self.place.outer_name("")
        remains = {name.removeprefix(prefix) for name in cgroups.names(prefix)}
        return [self.host(name) for name in names or sorted({*self.place.known_hosts(), *remains})]

    def _leave_when_empty(self) -> None:
        if not self.running():
            hub.stop(self.place)
            network.close_bridge(self.place)


def _checked(binds: Mapping[str, str]) -> dict[str, str]:
    for source, target in binds.items():
        if not Path(source).exists() or not target.startswith("/") or ":" in source + target:
            raise BadRequest(f"--bind {source}:{target}: give an existing path and an absolute path inside the host")
    return {str(Path(source).resolve()): target for source, target in binds.items()}
