"""The GPUs of the host and who holds their memory, as nvidia-smi tells it."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hostkit import processes

_FIELDS = "pci.bus_id,uuid,name,memory.total,memory.used,compute_cap,driver_version"
_TIMEOUT_S = 30


class DriverError(Exception):
    """nvidia-smi is missing, hangs or reports a fault; the message is its own first line."""


@dataclass(frozen=True)
class Gpu:
    """One card; `index` counts in PCI order, which is CUDA's order under CUDA_DEVICE_ORDER=PCI_BUS_ID."""

    pci: str
    index: int
    uuid: str
    name: str
    memory_total_mib: int
    memory_used_mib: int
    compute_capability: str
    driver: str
    minor: int | None
    numa_node: int | None


@dataclass(frozen=True)
class Use:
    """GPU memory held by a process."""

    pci: str
    pid: int
    used_mib: int


def gpus() -> list[Gpu]:
    """All cards in PCI order. Raises DriverError."""
    rows = sorted(_query(f"--query-gpu={_FIELDS}"), key=lambda row: pci_address(row[0]))
    return [_gpu(index, row) for index, row in enumerate(rows)]


def driver() -> str:
    """Version of the driver. Raises DriverError, also when there is no card."""
    found = gpus()
    if not found:
        raise DriverError("nvidia-smi lists no GPU")
    return found[0].driver


def uses() -> list[Use]:
    """Every process that holds GPU memory. Raises DriverError."""
    rows = _query("--query-compute-apps=gpu_bus_id,pid,used_gpu_memory")
    return [Use(pci_address(pci), int(pid), _mib(used)) for pci, pid, used in rows]


def pci_address(bus_id: str) -> str:
    """'00000000:1B:00.0' of nvidia-smi as the kernel writes it: '0000:1b:00.0'."""
    domain, rest = bus_id.lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def _gpu(index: int, row: list[str]) -> Gpu:
    pci = pci_address(row[0])
    return Gpu(pci, index, row[1], row[2], _mib(row[3]), _mib(row[4]), row[5], row[6], _minor(pci), numa_node(pci))


def _minor(pci: str) -> int | None:
    """The N of /dev/nvidiaN, which need not follow the PCI order. Within a container /proc may not show the driver."""
    try:
        text = Path(f"/proc/driver/nvidia/gpus/{pci}/information").read_text()
    except OSError:
        return minors(_said("--query")).get(pci)
    found = re.search(r"Device Minor:\s*(\d+)", text)
    return int(found.group(1)) if found else None


def numa_node(pci: str, devices: Path = Path("/sys/bus/pci/devices")) -> int | None:
    """The socket that the card hangs on, by number. The kernel says -1 where the firmware does not tell."""
    try:
        node = int((devices / pci / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def minors(report: str) -> dict[str, int]:
    """Device minors by PCI address in what `nvidia-smi --query` prints; a card without one is left out."""
    found = {}
    for part in re.split(r"^GPU (?=[0-9A-Fa-f]{8}:)", report, flags=re.MULTILINE)[1:]:
        minor = re.search(r"^\s*Minor Number\s*:\s*(\d+)\s*$", part, re.MULTILINE)
        if minor:
            found[pci_address(part.split(maxsplit=1)[0])] = int(minor.group(1))
    return found


def _mib(text: str) -> int:
    """'[N/A]' stands where the driver cannot tell (a process in a container, for one)."""
    return int(text) if text.isdigit() else 0


def _query(question: str) -> list[list[str]]:
    said = _said(question, "--format=csv,noheader,nounits")
    return [[cell.strip() for cell in line.split(", ")] for line in said.splitlines() if line.strip()]


def _said(*options: str) -> str:
    """What nvidia-smi prints. Raises DriverError."""
    try:
        # Not subprocess.run(): it waits for a child that hangs in the driver even after it was killed.
        asked = subprocess.Popen(["nvidia-smi", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said, _ = asked.communicate(timeout=_TIMEOUT_S)
    except FileNotFoundError:
        raise DriverError("nvidia-smi not found") from None
    except subprocess.TimeoutExpired:
        asked.kill()
        raise DriverError(f"nvidia-smi did not answer within {_TIMEOUT_S} s") from None
    if asked.returncode != 0:
        raise DriverError(said.strip().splitlines()[0] if said.strip() else "failed")
    return said


def uses_with_processes() -> list[tuple[Use, processes.Process | None]]:
    return [(use, processes.read(use.pid)) for use in uses()]
