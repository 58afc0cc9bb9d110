"""Figures of measured and predicted runs."""
