"""`collbench check`."""
