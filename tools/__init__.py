"""Programs for the people who build collbench, run by hand and nightly; tools/README.md lists them."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
