"""The runs of a folder, and the checks of a fleet of nodes."""
