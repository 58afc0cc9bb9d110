"""Measured against expected, and what would explain the difference."""
