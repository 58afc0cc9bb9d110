"""The CSV that rccl-tests writes with its reporter, with MPI and without, older and newer."""

from collections.abc import Iterator, Mapping

from collbench.formats import Format
from collbench.formats.csv_rows import CsvRow, CsvTable, table
from collbench.formats.imported import Hints, Machine, Rows, Test, UnfitRow, known_collective, make_case, said_ranks
from collbench.formats.source import Source, clean, count, exact, microseconds
from collbench.measurement import Reported

NAME = "rccl-csv"
NEEDED = {"numcycle", "collective", "size", "type", "time"}


def recognises(source: Source) -> bool:
    """By the names of its columns."""
    return set(source.first.lower().replace(" ", "").split(",")) >= NEEDED


def read(source: Source, hints: Hints) -> list[Test]:
    """Its rows, a test for each number of ranks."""
    whole = table(source, NEEDED, _with_nodes)
    tests: dict[int, list[CsvRow]] = {}
    for row in whole.rows:
        ranks = said_ranks(hints, _ranks(row[2]), source.name, "it does not tell the number of ranks")
        tests.setdefault(ranks, []).append(row)
    return [_test(source, whole, ranks, rows) for ranks, rows in tests.items()]


def _with_nodes(names: list[str], words: list[str]) -> list[str]:
    """Older versions leave `nodes` out of the header, and not out of the rows."""
    return [*names[:2], "nodes", *names[2:]] if "nodes" not in names and len(words) == len(names) + 1 else names


def _ranks(row: Mapping[str, str]) -> int | None:
    gpus = exact(row.get("gpus", ""))
    ranks = exact(row.get("ranks", ""))
    return gpus or (ranks * (exact(row.get("gpusperrank", "")) or 1) if ranks else None)


def _test(source: Source, whole: CsvTable, ranks: int, rows: list[CsvRow]) -> Test:
    kept, nodes = Rows(), exact(rows[0][2].get("nodes", ""))
    for reason in whole.bad if whole.rows[:1] == rows[:1] else ():
        kept.leave(reason)
    for at, (_, line, row) in enumerate(rows):
        kept.add(_results(at, line, row, ranks))
    name = f"{ranks} x AMD GPU" + (f" on {nodes} nodes" if nodes and nodes > 1 else "")
    return Test(
        format=NAME,
        tool="rccl-tests",
        version="CSV",
        file=source.file,
        machine=Machine(ranks, name, nodes=nodes),
        results=tuple(kept.results),
        complete=not source.torn,
        layout={"header": whole.header},
        left_out=kept.left_out,
        remarks=(f"incomplete: its last line is torn, {len(rows)} rows",) if source.torn else (),
    )


def _results(at: int, line: str, row: Mapping[str, str], ranks: int) -> Iterator[Reported]:
    collective, size = known_collective(row["collective"]), exact(row["size"])
    if collective is None:
        raise UnfitRow(f"collbench has no collective like {clean(row['collective'], 40)}")
    if size is None:
        raise UnfitRow("its size is no whole number")
    place = row.get("inplace", "0").lower() in ("1", "true")
    case = make_case(collective, size, row["type"], row.get("redop") or "sum", 0, ranks, place)
    yield Reported(
        case,
        "rccl",
        "gpu",
        seconds=microseconds(row["time"]),
        statistic="mean of some operations and of the ranks, unless -a said otherwise",
        wrong_elements=count(row.get("#wrong", "")),
        printed={"row": at, "line": line},
    )


FORMAT = Format(NAME, "CSV of the reporter of rccl-tests", recognises, read, order=1)
