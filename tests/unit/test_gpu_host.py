"""The run against a real GPU: what can be known of it without one."""

from pathlib import Path

import pytest
import yaml

from hostkit import gpus
from sandbox.gpu_host import memory, probe, translate
from sandbox.gpu_host.asked import Stream
from sandbox.gpu_host.project import PROFILES, STAND_IN_PROFILES, filled
from serving.contract import Contract
from serving.plan import GROUP_DATA
from serving.profile import load_profile

QUERY = """
==============NVSMI LOG==============

Attached GPUs                             : 2
GPU 00000000:00:06.0
    Product Name                          : NVIDIA H200
    Minor Number                          : 3
    PCI
        Bus Id                            : 00000000:00:06.0
GPU 00000000:C1:00.0
    Product Name                          : NVIDIA H200
    Minor Number                          : N/A
"""


def test_the_device_minor_is_known_where_proc_does_not_show_the_driver() -> None:
    assert gpus.minors(QUERY) == {"0000:00:06.0": 3}


@pytest.mark.parametrize("folder", [PROFILES, STAND_IN_PROFILES], ids=["real", "rehearsal"])
def test_its_profiles_are_taken_by_the_engine(folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("*.yaml"):
        (tmp_path / f"gpu-host-{path.name}").write_text(filled(path.read_text(), "sglang-0.5.23", "9.0"))
    contract = Contract.load(GROUP_DATA / "engines/contracts/sglang-0.5.23.json")
    for name in ("graphs", "eager", "dies"):
        profile = load_profile(tmp_path, f"gpu-host-{name}")
        assert contract.resolve(profile.arguments, name).notes == ()
        assert (profile.engine, profile.compute_capability) == ("sglang-0.5.23", "9.0")


def test_the_profile_that_dies_differs_only_in_what_kills_it() -> None:
    dies = yaml.safe_load((PROFILES / "dies.yaml").read_text())
    assert dies["arguments"] == {"max_running_requests": 30_000_000}


def test_the_probe_runs_under_the_restrictions_of_the_server_s_own_unit() -> None:
    text = probe.unit_text(probe.TEMPLATE.read_text(), ["0", "3"], "/usr/bin/python3")
    lines = text.splitlines()
    assert {"DeviceAllow=/dev/nvidia0 rw", "DeviceAllow=/dev/nvidia3 rw", "ProtectSystem=strict"} <= set(lines)
    assert "ReadWritePaths=/var/cache/probe" in lines
    assert "SystemCallFilter=~@privileged" in lines
    assert "{{" not in text
    assert "NUMA" not in text
    assert "NUMAMask=1" in probe.unit_text(probe.TEMPLATE.read_text(), ["0"], "/usr/bin/python3", 1)


def test_gpu_memory_is_told_before_each_start(tmp_path: Path) -> None:
    samples = tmp_path / "memory.csv"
    samples.write_text("10.0,0,0,0\n11.0,0,76000,50\n12.0,0,76000,50\n13.0,0,4,0\n14.0,0,75000,9\n")
    first, second = memory.around(samples, [10.5, 13.5])
    assert (first["mib_before"], first["most_mib_after"]) == (0, 76000)
    assert (second["mib_before"], second["most_mib_after"]) == (4, 75000)


def test_a_line_of_nvidia_smi_is_a_sample() -> None:
    moment, *values = memory.row("2026/11/30 14:48:27.250, 0, 76064, 12\n").strip().split(",")
    assert (float(moment) % 60, values) == (27.25, ["0", "76064", "12"])
    with pytest.raises(ValueError, match="time data"):
        memory.row("Unable to determine the device handle")


def test_only_the_process_ids_of_an_answer_are_translated() -> None:
    rows = "00000000:00:06.0, 1, 76064\n00000000:00:06.0, 999999999, 1\n"
    question = ["--query-compute-apps=gpu_bus_id,pid,used_gpu_memory", "--format=csv,noheader,nounits"]
    assert translate.translated(question, rows) == rows, "those of this namespace, and of no process, stay"
    assert translate.translated(["--query-gpu=pid"], "1, 2\n") == "1, 2\n"


def test_a_stream_is_whole_only_with_all_its_tokens() -> None:
    assert Stream(8, tokens=8, done=True).whole
    assert not Stream(8, tokens=7, done=True).whole
    assert not Stream(8, tokens=8, done=False).whole
