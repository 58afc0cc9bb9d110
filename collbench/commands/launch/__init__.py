"""`collbench launch`."""
