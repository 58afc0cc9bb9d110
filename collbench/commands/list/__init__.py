"""What there is: collectives, implementations, platforms, systems."""
