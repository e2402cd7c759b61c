"""The sandbox: systemd machines on this computer that stand in for GPU hosts."""

profile = "sandbox"
