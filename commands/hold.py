"""Stops each host and keeps it stopped through reboots and deploys: --data why="..."; --data off=true lets go.

Run: pyinfra inventory.py commands/hold.py
"""

from tasks import console

console.hold()
