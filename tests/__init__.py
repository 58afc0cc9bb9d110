"""What shows that collbench is right.  A package, so that none called `tests` that is installed takes its place."""
