"""`collbench sweep`."""
