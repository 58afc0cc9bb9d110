"""What connects the ranks, here or in a described system."""
