"""What runs on the host. Stdlib only; imports nothing of the controller's code."""
