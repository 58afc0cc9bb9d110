"""`collbench list`."""
