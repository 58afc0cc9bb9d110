"""Figures of runs, drawn by the kinds of figures that are there."""
