"""Curves of a run held against the model of its machine, with the likely reason where they are not as expected."""
