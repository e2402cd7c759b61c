"""Stand in for the module that a unit's ExecStart names."""

import sys

from sandbox.simulated.engine.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
