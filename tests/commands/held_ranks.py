"""Ranks that stop, asleep, at a place that a test can count on: nothing depends on how fast the machine is.

`python` reads `sitecustomize.py` at its start.  In the second rank of a run it has every timing wait once the run files
hold so many rows, until the test lets it go on; the first rank waits for the second one as it always does, in MPI.
"""

import os
from pathlib import Path

_SITE = """
import os, time
from pathlib import Path

if "COLLBENCH_LINK" in os.environ and os.environ.get("PMI_RANK") == "1":
    from collbench.platforms.cpu.platform import CpuClock

    files = [Path(name) for name in os.environ["HELD_BY"].split(os.pathsep)]
    timed = CpuClock.time

    def held():
        kept = all(file.exists() and file.read_text().count('"measurement"') >= HELD_FROM for file in files)
        return kept and not Path(os.environ["HELD_UNTIL"]).exists()

    def wait_and_time(platform, prepared, launches):
        while held():
            time.sleep(0.01)
        return timed(platform, prepared, launches)

    CpuClock.time = wait_and_time
"""


def held(folder: Path, *runs: str, rows: int) -> dict[str, str]:
    """The variables for a command whose ranks wait once each of these runs in `folder` has so many rows."""
    (folder / "sitecustomize.py").write_text(_SITE.replace("HELD_FROM", str(rows)))
    files = os.pathsep.join(str(folder / run / "run.jsonl") for run in runs)
    paths = os.pathsep.join((str(folder), str(Path(__file__).parents[2])))
    return {"PYTHONPATH": paths, "HELD_BY": files, "HELD_UNTIL": str(folder / "go")}


def go(folder: Path) -> None:
    (folder / "go").touch()
