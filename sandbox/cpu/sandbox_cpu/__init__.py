"""The parts of the CPU sandbox that sitecustomize.py puts in place, one module each."""
