"""`collbench topo`."""
