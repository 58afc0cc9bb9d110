"""Run files and the folders that hold them.

store.py        a run file: written line by line, and read
schema.py       results, cases and sweeps as JSON, for the file and for the wire to workers
header.py       what holds for the whole run
earlier.py      lines of earlier formats
flat.py         results as flat records, for other programs
environment.py  host, versions and variables of a run
listing.py      the runs of a folder, newest first
"""

from pathlib import Path

DEFAULT = Path("results", "runs")
"""Where sweeps leave their runs."""
