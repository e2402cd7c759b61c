"""Shows what serves on each host, and changes nothing. Run: pyinfra inventory.py commands/status.py"""

from tasks import status

status.show()
