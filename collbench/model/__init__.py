"""What a collective should take on a system that is described, not measured."""
