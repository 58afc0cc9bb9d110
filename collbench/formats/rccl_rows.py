"""Rows of the reporter of rccl-tests, whatever file they stand in: by the names of its CSV's columns, in lower case."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from collbench.collectives import Collective
from collbench.formats.imported import Hints, Machine, Rows, Test, UnfitRow, known_collective, make_case, said_ranks
from collbench.formats.nccl_tests.evidence import Evidence, Witness
from collbench.formats.nccl_tests.ranks import RankCount, settle
from collbench.formats.source import Source, clean, count, exact, microseconds
from collbench.results import Reported

ReporterRow = tuple[int, str, Mapping[str, str]]  # number, text and words


def reporter_tests(
    source: Source, hints: Hints, rows: Sequence[ReporterRow], bad: Sequence[str], kind: Test
) -> list[Test]:
    """A test for each number of ranks; `kind` is what all of them have in common."""
    groups: dict[tuple[str, int], list[ReporterRow]] = {}
    for row in rows:
        groups.setdefault((row[2]["collective"], _ranks(row[2]) or 0), []).append(row)
    tests: dict[int, list[ReporterRow]] = {}
    remarks: dict[int, list[str]] = {}
    for (word, told), some in groups.items():
        counted = _counted(known_collective(word), some, told, hints)
        ranks = said_ranks(Hints(), counted.ranks, source.name, counted.why)
        tests.setdefault(ranks, []).extend(some)
        remarks.setdefault(ranks, []).extend(filter(None, [counted.why]))
    made = [_test(kind, ranks, sorted(some, key=lambda row: row[0]), remarks[ranks]) for ranks, some in tests.items()]
    return [replace(made[0], left_out=(*_counted_bad(bad), *made[0].left_out)), *made[1:]]


def _counted_bad(bad: Sequence[str]) -> tuple[str, ...]:
    kept = Rows()
    for reason in bad:
        kept.leave(reason)
    return kept.left_out


def _ranks(row: Mapping[str, str]) -> int | None:
    gpus, ranks = exact(row.get("gpus", "")), exact(row.get("ranks", ""))
    return gpus or (ranks * (exact(row.get("gpusperrank", "")) or 1) if ranks else None)


def _counted(collective: Collective | None, rows: Sequence[ReporterRow], told: int, hints: Hints) -> RankCount:
    """The number of ranks, which the bandwidths may correct."""
    if collective is None:
        return RankCount(hints.ranks or told or 1)
    witnesses = [
        Witness(
            exact(row["size"]) or 0,
            None,
            row["type"],
            (row["time"], 1e-6),
            row.get("algbw", ""),
            row.get("busbw", ""),
        )
        for _, _, row in rows
    ]
    counted = settle(collective, Evidence(witnesses), [told] if told else [], None, hints.ranks)
    return counted if counted.ranks or told else RankCount(None, "it does not tell the number of ranks")


def _test(kind: Test, ranks: int, rows: Sequence[ReporterRow], remarks: Sequence[str]) -> Test:
    kept, nodes = Rows(), exact(rows[0][2].get("nodes", ""))
    for at, (_, line, row) in enumerate(rows):
        kept.add(_results(at, line, row, ranks))
    name = f"{ranks} x AMD GPU" + (f" on {nodes} nodes" if nodes and nodes > 1 else "")
    return replace(
        kind,
        machine=Machine(ranks, name, nodes=nodes),
        results=tuple(kept.results),
        left_out=kept.left_out,
        remarks=(*kind.remarks, *remarks),
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
        statistic="mean of some operations, mean over ranks, unless -a said otherwise",
        wrong_elements=count(row.get("#wrong", "")),
        printed={"row": at, "line": line},
    )
