"""Goes back to the release that was good before (or --data release=DIGEST); the next deploy goes where group_data says.

Run: pyinfra inventory.py commands/rollback.py
"""

from tasks import console

console.roll_back()
