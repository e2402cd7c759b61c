"""Simulated engine: what SGLang 0.5.23 looks like from outside, in a second, and with faults on demand.

PYTHONPATH=/opt/sandbox/simulated in a unit's environment puts it in the place of `-m sglang.launch_server`, and
of nothing else. It is for tests of what the playbook makes of an engine that fails; that it resembles the real one
is tested against captures of the real one and beside it. Standard library only, Python 3.11.
"""
