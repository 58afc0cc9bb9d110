"""Commands: a folder for each, found by being there."""
