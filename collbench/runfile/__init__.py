"""Run files, and the runs of a folder as a small database: the files are the truth, all else can be thrown away.

file.py         one run file: written line by line, and read
header.py       what holds for the whole run
records.py      its rows as JSON
format_1.py     rows of the first format
environment.py  host, versions and variables of a run
scan_folder.py  what is kept of one run file: facts for the list, a median for each case
index.py        the same for all files of a folder, in the user's cache folder
listing.py      the runs of a folder, newest first: read where they changed, and filtered
tags.py         names that stand beside a run
baseline.py     the run to compare another one with
"""

from pathlib import Path

DEFAULT = Path("results", "runs")
"""Where sweeps leave their runs."""
