"""Put the simulated engine in the place of `python -m sglang.launch_server`.

Python imports this file at the start of every process with this folder on its PYTHONPATH. All others, such as the
check of arguments by the engine's own parser, go on to see the real packages.
"""

import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))

if ("-m", "sglang.launch_server") in zip(sys.orig_argv, sys.orig_argv[1:], strict=False):
    # The second is where the package `sandbox` lies: /opt on a host, else the project.
    sys.path[:0] = [os.path.join(HERE, "shadow"), os.path.dirname(os.path.dirname(HERE))]
