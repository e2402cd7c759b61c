"""What the real SGLang server needs on a computer without a GPU, put on its PYTHONPATH and nobody else's.

Python imports this file by itself at the start of every process of the server, also of those that it spawns.
With nothing missing and no SANDBOX_ variable set it changes nothing.
"""

from sandbox_cpu import apart, faults, gpu_claim, stand_ins

stand_ins.install()
gpu_claim.install()
apart.install()
faults.install()
