"""Command line of the sandbox: `python3 -m sandbox COMMAND`, as root, without a terminal."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from sandbox import commands, ssh
from sandbox.errors import BadRequest, HostNotRunning, SandboxError
from sandbox.fleet import Sandbox
from sandbox.inventory import DEFAULT_HOST
from sandbox.machine import Host

Options = argparse.Namespace
Command = Callable[[Sandbox, Options], int]


def say(line: str) -> None:
    """Print progress at once, also into a pipe."""
    print(line, flush=True)


def up(sandbox: Sandbox, options: Options) -> int:
    """Boot hosts unless they run: fresh, or with --keep on the disk they have."""
    started, ran = time.monotonic(), {host.name for host in sandbox.running()}
    names = options.hosts or [DEFAULT_HOST]
    hosts = sandbox.up(*names, keep=options.keep, binds=_binds(options.bind))
    for host in hosts:
        say(f"{host.name} {'already runs' if host.name in ran else 'is up'} ({host.address})")
    if options.bind and ran & set(names):
        say("note: --bind takes effect when a host boots fresh; for one that runs, use down and up")
    return _finish("up", started)


def boot(sandbox: Sandbox, options: Options) -> int:
    """Switch hosts on again, with the disk they have."""
    options.keep, options.bind = True, []
    return up(sandbox, options)


def down(sandbox: Sandbox, options: Options) -> int:
    """Shut hosts down cleanly, all when none is named; nothing of them stays behind but their disks."""
    started = time.monotonic()
    ran = sandbox.down(*options.hosts)
    if not options.hosts:  # those of test workers that were killed, too
        ran += [name for place in sandbox.place.workers() for name in Sandbox(place.root, say).down()]
    say(f"shut down: {', '.join(ran) or 'no host was running'}")
    return _finish("down", started)


def reset(sandbox: Sandbox, options: Options) -> int:
    """Pull the plug, drop what the hosts wrote, boot them fresh."""
    started = time.monotonic()
    sandbox.reset(*(options.hosts or [DEFAULT_HOST]))
    return _finish("reset", started)


def reboot(sandbox: Sandbox, options: Options) -> int:
    """Reboot hosts from inside and wait until they answer."""
    started = time.monotonic()
    sandbox.reboot(*(options.hosts or [DEFAULT_HOST]))
    return _finish("reboot", started)


def powercut(sandbox: Sandbox, options: Options) -> int:
    """Pull the plug, without a shutdown."""
    started = time.monotonic()
    sandbox.powercut(*(options.hosts or [DEFAULT_HOST]))
    return _finish("powercut", started)


def keep(sandbox: Sandbox, options: Options) -> int:
    """Keep what a host installed under the paths, for every host that boots fresh later."""
    kept = sandbox.keep(options.host, *options.paths)
    for path in kept.paths:
        say(f"kept {path}")
    say(f"{kept.megabytes} MB in {kept.seconds:.1f} s" if kept.paths else "nothing new to keep")
    return 0


def shell(sandbox: Sandbox, options: Options) -> int:
    """Run a command on a host over SSH (or a login shell) and end with its status."""
    host = _running(sandbox, options.host)
    argv = ssh.command(host.place, host.name, ())
    # As ssh itself does: the words are joined and the remote shell reads them.
    argv += [" ".join(options.words)] if options.words else []
    return subprocess.run(argv, check=False).returncode


def show(sandbox: Sandbox, _options: Options) -> int:
    """List the hosts: name, state, address, supervisor."""
    for host in sandbox.known():
        process = host.process
        state, pid = ("running", str(process.pid)) if process else ("stopped", "-")
        say("\t".join([host.name, state, host.address, pid]))
    return 0


def addr(sandbox: Sandbox, options: Options) -> int:
    """Print address and port of a host's sshd on the bridge."""
    say(f"{_running(sandbox, options.host).address} 22")
    return 0


def sshconfig(sandbox: Sandbox, _options: Options) -> int:
    """Print an ssh_config for the running hosts."""
    for host in sandbox.running():
        say(ssh.host_block(sandbox.place, host.name, host.address))
    return 0


def deps(_sandbox: Sandbox, options: Options) -> int:
    """Tell whether the needed programs exist; --install installs what is missing, and is silent where nothing is."""
    if options.install:
        commands.install_packages()
    absent = commands.missing()
    for command, package in commands.PACKAGE_OF.items():
        if command in absent or not options.install:
            say(f"{'missing' if command in absent else 'ok':8}{command} (package {package})")
    return 2 if absent else 0


def parser() -> argparse.ArgumentParser:
    """Return the parser; each command's help is its function's docstring."""
    top = argparse.ArgumentParser(prog="python3 -m sandbox", description=__doc__)
    verbs = top.add_subparsers(required=True, metavar="COMMAND")
    _verb(verbs, up).add_argument("--keep", action="store_true", help="boot the disk the host has")
    verbs.choices["up"].add_argument("--bind", action="append", default=[], metavar="SRC:DST", help="read-only")
    for command in (up, boot, down, reset, reboot, powercut):
        (verbs.choices.get(command.__name__) or _verb(verbs, command)).add_argument("hosts", nargs="*", metavar="HOST")
    for command, name in ((keep, "keep"), (shell, "ssh"), (addr, "addr")):
        _verb(verbs, command, name).add_argument("host", metavar="HOST")
    verbs.choices["keep"].add_argument("paths", nargs="+", metavar="PATH")
    verbs.choices["ssh"].add_argument("words", nargs=argparse.REMAINDER, metavar="CMD")
    _verb(verbs, show, "list")
    _verb(verbs, sshconfig)
    _verb(verbs, deps).add_argument("--install", action="store_true", help="install them with apt-get")
    return top


def main(arguments: Sequence[str]) -> int:
    """Run one command; a refusal is one message and an exit status, never a traceback."""
    options = parser().parse_args(arguments)
    # `su` and some desktops leave these out, and `ip` and `nft` with them.
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    try:
        if options.command is not deps:
            commands.require_root()
        return int(options.command(Sandbox(say=say), options))
    except SandboxError as error:
        print(f"sandbox: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], command: Command, name: str = ""
) -> argparse.ArgumentParser:
    text = command.__doc__ or ""
    verb = verbs.add_parser(name or command.__name__, help=text, description=text)
    verb.set_defaults(command=command)
    return verb


def _binds(specifications: Sequence[str]) -> dict[str, str]:
    pairs = [item.partition(":") for item in specifications]
    for (source, _, target), item in zip(pairs, specifications, strict=True):
        if not source or not target:
            raise BadRequest(f"--bind {item}: write SRC:DST")
    return {source: target for source, _, target in pairs}


def _running(sandbox: Sandbox, name: str) -> Host:
    host = sandbox.host(name)
    if not host.running:
        raise HostNotRunning(name)
    return host


def _finish(what: str, started: float) -> int:
    say(f"{what}: {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
