"""The sandbox: systemd machines on this computer that stand in for GPU hosts."""

profile = "sandbox"

# Seconds instead of a minute; the full proof on a CPU is `--data gates=full`.
gates = "quick"
