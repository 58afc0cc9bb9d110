"""A measured curve as three numbers with intervals."""
