"""Measures, explains and predicts collective communication; docs/files.md is the map."""

__version__ = "0.1.0"
