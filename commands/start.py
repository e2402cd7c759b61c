"""Starts the active release of each host and proves it.

Run: pyinfra inventory.py commands/start.py
"""

from tasks import console

console.start()
