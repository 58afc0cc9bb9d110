"""Run files and the folders that hold them."""

from pathlib import Path

DEFAULT = Path("results", "runs")
"""Where sweeps leave their runs."""
