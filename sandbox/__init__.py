"""Sandbox hosts: real systemd machines that stand in for GPU hosts. Standard library only."""

from sandbox.errors import SandboxError
from sandbox.fleet import Sandbox
from sandbox.inventory import hosts
from sandbox.machine import Host

__all__ = ["Host", "Sandbox", "SandboxError", "hosts"]
