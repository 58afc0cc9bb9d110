"""The CSV that rccl-tests writes with its reporter (-Z csv -x FILE), with MPI and without, older and newer."""

from collbench.formats import Format
from collbench.formats.csv_rows import table
from collbench.formats.imported import Hints, Machine, Test
from collbench.formats.rccl_rows import reporter_tests
from collbench.formats.source import Source

NAME = "rccl-csv"
NEEDED = {"collective", "size", "type", "time"}


def recognises(source: Source) -> bool:
    """By the names of its columns."""
    return set(source.first.lower().replace(" ", "").split(",")) >= NEEDED


def read(source: Source, hints: Hints) -> list[Test]:
    """Its rows, a test for each number of ranks."""
    whole = table(source, NEEDED, _with_nodes)
    kind = Test(
        format=NAME,
        tool="rccl-tests",
        version="CSV",
        file=source.file,
        machine=Machine(1, ""),
        results=(),
        complete=not source.torn,
        layout={"header": whole.header},
        remarks=(f"incomplete: its last line is torn, {len(whole.rows)} rows",) if source.torn else (),
    )
    return reporter_tests(source, hints, whole.rows, whole.bad, kind)


def _with_nodes(names: list[str], words: list[str]) -> list[str]:
    """Older versions leave `nodes` out of the header, and not out of the rows."""
    at = names.index("collective") + 1
    return [*names[:at], "nodes", *names[at:]] if "nodes" not in names and len(words) == len(names) + 1 else names


FORMAT = Format(NAME, "CSV of the reporter of rccl-tests", recognises, read, order=1)
