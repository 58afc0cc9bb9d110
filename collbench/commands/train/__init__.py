"""`collbench train`."""
