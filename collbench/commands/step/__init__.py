"""`collbench step`."""
