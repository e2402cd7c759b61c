"""What measures: `make bench` runs all, `make bench NAME=noop` one."""
