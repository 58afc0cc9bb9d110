"""The earlier name of `collbench scan --pairs`, which stays until 0.3.0."""
