"""The model: expected times of collectives on a described system."""
