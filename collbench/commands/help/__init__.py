"""`collbench help`."""
