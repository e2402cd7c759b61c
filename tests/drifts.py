"""The drift matrix: what hands do to a served host, what `--dry` must say, and whether the server may restart."""

from dataclasses import dataclass

from tests.playbook import TINY

UNIT = "/etc/systemd/system/sglang-server.service"
NCCL = "/etc/sglang/nccl.env"
ENV = "/etc/sglang/sglang-server.env"
RELEASE = "/var/lib/sglang/releases/$(basename $(readlink /var/lib/sglang/active))"
ENGINE = "$(dirname $(dirname $(systemctl show -p ExecStart sglang-server | sed 's/.*path=//; s/ .*//')))"
RESTART = "systemctl restart sglang-server"
EDIT = f"mkdir -p {UNIT}.d; printf '[Service]\\nNice=5\\n' >{UNIT}.d/override.conf; systemctl daemon-reload"


@dataclass(frozen=True)
class Drift:
    """`does` is run as root on the host; `named` must stand in the one operation that `--dry` lists."""

    does: str
    named: str


# The process was started from what the release says: all of this is put right beside it.
BESIDE_A_RIGHT_PROCESS = {
    "unit edited": Drift(f"sed -i s/^LimitNOFILE.*// {UNIT}; systemctl daemon-reload", f"{UNIT}: edited"),
    "unit deleted": Drift(f"rm {UNIT}; systemctl daemon-reload", f"{UNIT}: missing"),
    "unit chmod-ed": Drift(f"chmod 600 {UNIT}", f"{UNIT}: mode 600 instead of 644"),
    "unit chown-ed": Drift(f"chown admin:admin {UNIT}", f"{UNIT}: owner admin:admin instead of root:root"),
    "unit masked by hand": Drift(f"ln -sf /dev/null {UNIT}; systemctl daemon-reload", f"{UNIT}: a link to /dev/null"),
    "unit disabled": Drift("systemctl disable sglang-server", "sglang-server.service: disabled instead of enabled"),
    "target disabled": Drift("systemctl disable sglang.target", "sglang.target: disabled instead of enabled"),
    "drop-in by systemctl edit": Drift(
        EDIT,
        f"{UNIT}.d/override.conf: a drop-in that the release does not have",
    ),
    "limit by systemctl set-property": Drift(
        "systemctl set-property sglang-server.service CPUWeight=50",
        "sglang-server.service.d/50-CPUWeight.conf: a drop-in",
    ),
    "env file edited": Drift(f"sed -i s/=LL/=Simple/ {NCCL}", f"{NCCL}: edited"),
    "env file deleted": Drift(f"rm {ENV}", f"{ENV}: missing"),
    "env file chmod-ed": Drift(f"chmod 666 {ENV}", f"{ENV}: mode 666 instead of 644"),
    "env file chown-ed": Drift(f"chown sglang {ENV}", f"{ENV}: owner sglang:root instead of root:root"),
    "journal settings edited": Drift(
        "echo SystemMaxUse=1M >>/etc/systemd/journald@sglang.conf", "/etc/systemd/journald@sglang.conf: edited"
    ),
    "release edited": Drift(f"sed -i s/LL/XX/ {RELEASE}/release.json", "Stage release.json"),
    "release's gates edited": Drift(f"echo >>{RELEASE}/gates.json", "Stage gates.json"),
    "active link lost": Drift("rm /var/lib/sglang/active", "/var/lib/sglang/active: missing instead of"),
    "last-good link lost": Drift("rm /var/lib/sglang/last-good", "the server runs from it and is only proven again"),
    "console link broken": Drift("ln -sfn /nowhere /usr/local/bin/sglang-box", "Link /usr/local/bin/sglang-box"),
    "hostkit gone": Drift("rm -r /opt/sglang/hostkit/*", "Put hostkit onto the host"),
    "hostkit edited": Drift("echo >>$(readlink -f /usr/local/bin/sglang-box)", "Put hostkit onto the host"),
    "cache folder chown-ed": Drift("chown root /var/cache/sglang/*", "Create 1 folders"),
    "a unit of another release still running": Drift(
        "mkdir -p /var/lib/sglang/releases/old; "
        'echo \'{"units": [{"name": "sglang-old"}]}\' >/var/lib/sglang/releases/old/release.json; '
        "printf '[Service]\\nExecStart=/bin/sleep 1000\\n' >/etc/systemd/system/sglang-old.service; "
        "systemctl daemon-reload; systemctl start sglang-old",
        "sglang-old.service: active, a unit of another release",
    ),
    "package removed from the host": Drift("dpkg --remove python3-venv python3.11-venv", "Install python3.11-venv"),
    "checkpoint touched": Drift(f"touch {TINY}/tokenizer.json", "Check sandbox/tiny@"),
}

# The process does not run, or was started from something else: it starts anew, once.
FROM_SOMETHING_ELSE = {
    "server stopped": Drift("systemctl stop sglang-server", "starts sglang-server.service"),
    "server failed": Drift(
        "systemctl kill --signal=KILL --kill-whom=all sglang-server; systemctl stop sglang-server; "
        "systemctl start sglang-server; sleep 1; systemctl kill --signal=SEGV --kill-whom=main sglang-server; sleep 1",
        "sglang-server.service",
    ),
    "started from an edited environment": Drift(
        f"sed -i s/=LL/=Simple/ {NCCL}; {RESTART}", "starts sglang-server.service"
    ),
    "started with a drop-in": Drift(
        f"{EDIT}; {RESTART}",
        "starts sglang-server.service",
    ),
    "started from another release": Drift(
        f"ln -sfn /var/lib/sglang/releases/old /var/lib/sglang/active; {RESTART}", "starts sglang-server.service"
    ),
}
