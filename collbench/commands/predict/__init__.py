"""`collbench predict`."""
