"""Lists the checkpoints on each host, what they take and who needs them; --data remove=REPOSITORY@COMMIT removes one.

Run: pyinfra inventory.py commands/checkpoints.py -y
"""

from tasks import console

console.checkpoints()
