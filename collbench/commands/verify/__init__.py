"""`collbench verify`."""
