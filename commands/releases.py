"""Lists the releases kept on each host, with verdict, time, profile and tok/s; changes nothing.

Run: pyinfra inventory.py commands/releases.py
"""

from tasks import console

console.show("releases")
