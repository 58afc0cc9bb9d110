"""`collbench diagnose`."""
