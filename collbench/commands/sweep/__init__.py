"""Collectives measured over message sizes, in one setting or in two by turns."""
