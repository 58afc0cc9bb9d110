"""The help of a command, or the list of all."""
