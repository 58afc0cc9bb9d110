"""`collbench runs`."""
