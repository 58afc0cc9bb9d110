"""The function that makes a report of runs: `collbench.report`, which the command of this name calls too."""

from collections.abc import Sequence
from pathlib import Path

from collbench import reports
from collbench.api.reading import RunOrPath, as_run
from collbench.errors import UsageError, unlinked, writing
from collbench.runfile.store import Run


def report(
    runs: RunOrPath | Sequence[RunOrPath],
    out: Path | str | None = None,
    *,
    on: str | None = None,
    nodes: int | None = None,
) -> Path:
    """Write a report of a run, or of several: one HTML file, which opens without a network.

    Args:
        runs: A run or several, or their paths: measured, predicted, imported or explained.
        out: The file, which is written over; by default report.html next to the first run.
        on: What machine the runs are of, a preset or FILE.toml; by default as the run files say.
        nodes: How many nodes of it the ranks are spread over.

    Returns:
        The path of the report.

    Raises:
        RunFileError: One of them is no run file.
        UsageError: The system does not exist or cannot have the ranks, the place is a folder or a run, or it cannot be
            written to.

    >>> import collbench, tempfile
    >>> place = collbench.report("results/cpu-2-ranks", tempfile.mkdtemp() + "/mine.html")
    >>> place.name, place.read_text(encoding="utf-8")[:15]
    ('mine.html', '<!doctype html>')

    """
    shown = [as_run(run) for run in ([runs] if isinstance(runs, Run | Path | str) else runs)]
    place = Path(out) if out else shown[0].path.parent / "report.html"
    if place.suffix not in (".html", ".htm"):  # so that no run file is written over
        raise UsageError(f"{place} is no name of a report; choose another with --out, such as report.html")
    if not out:
        unlinked(place, "--out")
    text = reports.build(shown, on, nodes)
    with writing(place, "file with --out"):
        place.write_text(text, encoding="utf-8")
    return place
