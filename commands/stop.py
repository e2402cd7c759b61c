"""Stops what the playbook started and shows that the GPUs are free; a reboot or a deploy starts it again.

Run: pyinfra inventory.py commands/stop.py
"""

from tasks import console

console.stop()
