"""GPU stand-in: what a playbook can see of eight cards, without one. Nothing computes.

These files run in two places: here, to prepare a host's disk, and on the host as /opt/sandbox/gpu
(standard library only, Python 3.11).
"""
