"""`collbench plot`."""
