"""`collbench formats`."""
