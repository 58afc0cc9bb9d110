"""`collbench compare`."""
