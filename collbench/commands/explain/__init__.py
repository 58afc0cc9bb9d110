"""`collbench explain`."""
