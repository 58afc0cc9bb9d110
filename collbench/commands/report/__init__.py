"""`collbench report`."""
