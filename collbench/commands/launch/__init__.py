"""The command that starts ranks, for each launcher."""
