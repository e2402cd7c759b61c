"""The answers of nvidia-smi that are meant for people: the table, -L and -q. Layout as of driver 580."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sandbox.gpu.cards import Card
from sandbox.gpu.devices import BAR1_MIB, MEMORY_MIB, MODEL, POWER_LIMIT_W
from sandbox.gpu.holders import Holder
from sandbox.gpu.state import State

WIDE = "+" + "-" * 89 + "+"
RULE = "+-----------------------------------------+------------------------+----------------------+"
HEAD = [
    RULE,
    "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
    "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
    "|                                         |                        |               MIG M. |",
    "|=========================================+========================+======================|",
]
PROCESS_HEAD = [
    WIDE,
    "| Processes:" + " " * 78 + "|",
    "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
    "|        ID   ID                                                               Usage      |",
    "|" + "=" * 89 + "|",
]
NO_PROCESS = "|  No running processes found" + " " * 61 + "|"


def listing(cards: Sequence[Card]) -> list[str]:
    """Answer -L."""
    return [f"GPU {card.index}: {MODEL} (UUID: {card.gpu.uuid})" for card in cards]


def table(state: State, cards: Sequence[Card]) -> list[str]:
    """Answer a call without options."""
    version = f"NVIDIA-SMI {state.driver_version}"
    title = f"| {version:<34}Driver Version: {state.driver_version:<15}CUDA Version: {state.cuda_version:<9}|"
    lines = [f"{time.strftime('%a %b %e %H:%M:%S %Y')}       ", WIDE, title, *HEAD]
    for card in cards:
        lines += _card_lines(card)
    rows = [_process_line(card, process) for card in cards for process in card.processes]
    return [*lines, "", *PROCESS_HEAD, *(rows or [NO_PROCESS]), WIDE]


def report(state: State, cards: Sequence[Card], count: int) -> list[str]:
    """Answer -q: the parts about identity, memory and errors."""
    lines = ["", "==============NVSMI LOG==============", ""]
    lines += [_entry("Timestamp", time.strftime("%a %b %e %H:%M:%S %Y"))]
    lines += [_entry("Driver Version", state.driver_version), _entry("CUDA Version", state.cuda_version), ""]
    lines += [_entry("Attached GPUs", count)]
    for card in cards:
        lines += [f"GPU {card.gpu.bus_id}", *_card_report(card), ""]
    return lines


def _card_lines(card: Card) -> list[str]:
    name = f"{MODEL[:24]}..."
    power, memory = f"32W /  {POWER_LIMIT_W:.0f}W", f"{card.used_mib:>7}MiB / {MEMORY_MIB:>6}MiB"
    return [
        f"|{card.index:>4}  {name:<31}On  |   {card.gpu.bus_id} Off |{'0':>21} |",
        f"| N/A   31C    P8      {power:>18} | {memory} |{'0%':>8}{'Default':>13} |",
        f"|{'':41}|{'':24}|{'Disabled':>21} |",
        RULE,
    ]


def _process_line(card: Card, process: Holder) -> str:
    memory, name = f"{process.mib}MiB", process.process_name
    shown = name if len(name) <= 36 else f"...{name[-33:]}"
    return f"|{card.index:>5}   N/A  N/A{process.pid:>16}      C   {shown:<37}{memory:>9} |"


def _card_report(card: Card) -> list[str]:
    lines = [
        _entry("Product Name", MODEL, 4),
        _entry("Product Architecture", "Blackwell", 4),
        _entry("Persistence Mode", "Enabled", 4),
        _entry("GPU UUID", card.gpu.uuid, 4),
        _entry("Minor Number", card.gpu.minor, 4),
        *_section("PCI", {"Bus": f"0x{card.gpu.bus:02X}", "Domain": "0x0000", "Bus Id": card.gpu.bus_id}),
        *_section("MIG Mode", {"Current": "Disabled", "Pending": "Disabled"}),
        *_memory("FB Memory Usage", MEMORY_MIB, card.used_mib),
        *_memory("BAR1 Memory Usage", BAR1_MIB, 1),
        _entry("Compute Mode", "Default", 4),
        *_section("ECC Mode", {"Current": "Enabled", "Pending": "Enabled"}),
        "    ECC Errors",
    ]
    for period in ("Volatile", "Aggregate"):
        lines += [" " * 8 + period, *(_entry(f"{kind} Uncorrectable", 0, 12) for kind in ("SRAM", "DRAM"))]
    return [*lines, *_processes(card)]


def _processes(card: Card) -> list[str]:
    if not card.processes:
        return [_entry("Processes", "None", 4)]
    lines = ["    Processes"]
    for process in card.processes:
        lines += [
            _entry("Process ID", process.pid, 8),
            _entry("Type", "C", 12),
            _entry("Name", process.process_name, 12),
        ]
        lines += [_entry("Used GPU Memory", f"{process.mib} MiB", 12)]
    return lines


def _memory(title: str, total: int, used: int) -> list[str]:
    return _section(title, {"Total": f"{total} MiB", "Used": f"{used} MiB", "Free": f"{total - used} MiB"})


def _section(title: str, entries: dict[str, str]) -> list[str]:
    return [f"    {title}", *(_entry(key, value, 8) for key, value in entries.items())]


def _entry(key: str, value: object, indent: int = 0) -> str:
    return f"{' ' * indent + key:<42}: {value}"
