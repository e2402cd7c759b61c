"""Shows what the servers logged on each host, since they were started. Run: pyinfra inventory.py commands/logs.py -y

--data lines=200, --data unit=sglang-server, --data since="2 hours ago" (as journalctl reads it) ask for something else.
"""

from tasks import logs

logs.show()
