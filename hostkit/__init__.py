"""What runs on the host. Stdlib (and requests for HTTP); imports nothing of the controller's code."""
