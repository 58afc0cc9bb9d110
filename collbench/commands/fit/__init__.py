"""`collbench fit`."""
