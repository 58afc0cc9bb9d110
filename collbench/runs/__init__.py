"""The runs of a folder as a small database; the files are the truth, and everything else can be thrown away.

facts.py     what is kept of one run file: facts for the list, a median for each case
index.py     the same for all files of a folder, in the user's cache folder
listing.py   the runs of a folder, newest first: found, read where they changed, filtered
dates.py     the words of --since and --until
tags.py      names that stand beside a run
baseline.py  the run to compare another one with
columns.py   the list as lines of text
"""

from pathlib import Path

from collbench.runs.baseline import pick
from collbench.runs.listing import Entry, Filter, History

DEFAULT = Path("results", "runs")
"""Where sweeps leave their runs."""

__all__ = ["DEFAULT", "Entry", "Filter", "History", "pick"]
