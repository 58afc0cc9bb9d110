"""What a collective should take on a described system, and what a change of its network does."""
