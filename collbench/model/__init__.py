"""How long collectives should take on a system that is described, not measured."""
