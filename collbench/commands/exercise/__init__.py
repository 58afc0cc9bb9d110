"""`collbench exercise`."""
