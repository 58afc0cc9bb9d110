"""The list of the runs in a folder."""
