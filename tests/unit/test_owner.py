"""Whose a process is, by cgroup texts as kernels and container engines write them."""

import pytest

from hostkit import owner
from hostkit.owner import Owner

ID = "3f9c" * 16

UNITS = {
    "0::/system.slice/kimi.service\n": "systemctl stop kimi.service",
    "0::/system.slice/kimi.service/payload\n": "systemctl stop kimi.service",
    "0::/system.slice/system-kimi.slice/kimi@1.service\n": "systemctl stop kimi@1.service",
    "12:memory:/system.slice/kimi.service\n1:name=systemd:/system.slice/kimi.service\n": "systemctl stop kimi.service",
    "0::/system.slice/kimi.service/libpod-payload-" + ID + "\n": "systemctl stop kimi.service",
    "0::/user.slice/user-0.slice/user@0.service/app.slice/kimi.service\n": (
        "systemctl --user --machine=root@ stop kimi.service"
    ),
}

CONTAINERS = {
    f"0::/system.slice/docker-{ID}.scope\n": "docker stop 3f9c3f9c3f9c",
    f"0::/docker/{ID}\n": "docker stop 3f9c3f9c3f9c",
    f"12:devices:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/\n": "docker stop 3f9c3f9c3f9c",
    f"0::/system.slice/docker-{ID}.scope/system.slice/kimi.service\n": "docker stop 3f9c3f9c3f9c",
    f"0::/machine.slice/libpod-{ID}.scope/container\n": "podman stop 3f9c3f9c3f9c",
    f"0::/machine.slice/libpod-{ID}.scope\n": "podman stop 3f9c3f9c3f9c",
}

NOT_STOPPED_FROM_HERE = [
    f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-{ID}.scope\n",
    f"0::/kubepods/besteffort/pod1/{ID}\n",
    "0::/machine.slice/machine-box.scope/payload/system.slice/kimi.service\n",
    "0::/lxc.payload.box/system.slice/kimi.service\n",
]

SESSIONS = {
    "0::/user.slice/user-1000.slice/session-3.scope\n": "session-3.scope",
    "0::/user.slice/user-1000.slice/user@1000.service/init.scope\n": "user@1000.service",
    "0::/user.slice/user-1000.slice/user@1000.service/tmux-spawn-1.scope\n": "tmux-spawn-1.scope",
    "0::/system.slice/ssh.service\n": "ssh.service",
    "0::/system.slice/sshd.service\n": "sshd.service",
    "0::/system.slice/system-sshd.slice/sshd@1-10.0.0.1:22.service\n": "sshd@1-10.0.0.1:22.service",
    "0::/system.slice/system-getty.slice/getty@tty1.service\n": "getty@tty1.service",
    "0::/system.slice/cron.service\n": "cron.service",
}


@pytest.mark.parametrize("text", UNITS)
def test_a_unit_is_stopped_and_started_by_its_manager(text: str) -> None:
    found = owner.by_cgroup(text)
    assert (found.kind, found.stop) == ("unit", UNITS[text])
    assert found.start == UNITS[text].replace(" stop ", " start ")


@pytest.mark.parametrize("text", CONTAINERS)
def test_a_container_is_stopped_by_its_engine_whatever_runs_in_it(text: str) -> None:
    found = owner.by_cgroup(text)
    assert (found.kind, found.stop) == ("container", CONTAINERS[text])


@pytest.mark.parametrize("text", NOT_STOPPED_FROM_HERE)
def test_a_pod_or_a_machine_is_nobody_s_to_stop_from_here(text: str) -> None:
    found = owner.by_cgroup(text)
    assert (found.kind, found.stop) == ("container", "")
    assert found.reason


@pytest.mark.parametrize("text", SESSIONS)
def test_what_people_work_in_is_never_stopped(text: str) -> None:
    assert owner.by_cgroup(text) == Owner("session", SESSIONS[text])


@pytest.mark.parametrize("text", ["0::/\n", "0::/init.scope\n", ""])
def test_some_belong_to_nothing(text: str) -> None:
    assert owner.by_cgroup(text) == Owner("none", "")
