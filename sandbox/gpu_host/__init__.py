"""The playbook against a real GPU: a systemd machine that sees this computer's GPUs, deployed to over SSH.

What a sandbox host cannot show is shown here: the driver, CUDA, the engine's kernels and graphs, and how GPU memory
comes back. The machine is as the sandbox's (systemd-nspawn over a base tree), but has the real devices and shares the
network.
"""
