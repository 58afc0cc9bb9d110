"""`collbench init`: how long a communicator takes to start, by number of ranks."""
