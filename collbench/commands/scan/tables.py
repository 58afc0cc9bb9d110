"""Tables of pairs, judged as a scan: a run of `scan --pairs` or `pairs`, or CSV of sender, receiver and GB/s."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from collbench.analysis.sequential import usual_slower
from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.commands.scan.matrices import matrices
from collbench.commands.scan.rows import ONE_WAY, MemberLevel, Members, PairTimes, Round, Scan
from collbench.commands.scan.verdict import Evidence, ScanVerdict, judge, refuse_few
from collbench.datatypes import DATATYPES, NONE
from collbench.errors import RunFileError
from collbench.host.sanitize import message, read_lines
from collbench.runfile.store import NAME, Run, read
from collbench.units import QUANTITY, format_size

Cells = Mapping[tuple[int, int], float]  # seconds of a message, by sender and receiver
_MOST, _LEAST = 4096, 1e-9  # members of a table; GB/s


def judge_file(path: Path, slower: float | None) -> ScanVerdict:
    """Judge a run of a scan or of pairs, or a CSV table, by default by 10 %, on a CPU 20 %; else RunFileError."""
    if path.is_dir() or path.suffix == Path(NAME).suffix:
        return judge_run(read(path), slower)
    names, cells = _csv(path)
    hosts = [name.partition(":")[0] for name in names] if all(":" in name for name in names) else []
    return _judged(names, hosts, "", {"": (cells, True)}, slower)


def judge_run(run: Run, slower: float | None) -> ScanVerdict:
    """Return the verdict of a run of a scan or of pairs."""
    if run.results and isinstance(run.results[0].case.work, Scan):
        return judge(run.results, slower)
    every, topology = matrices(run.results), run.header.topology
    if not every:
        raise RunFileError(f"{run.path} is of no scan and of no pairs; `collbench check` judges other runs")
    tables = {}
    for (name, nbytes, pattern, at_once), rows in every.items():
        if not at_once or (name, nbytes, pattern, False) not in every:  # what pairs contend for slows them at once
            cells = {(row.pair.sender, row.pair.receiver): row.typical for row in rows}
            tables[f"{name}, {pattern}, {format_size(nbytes)}"] = cells, pattern == ONE_WAY
    first: PairTimes = next(iter(every.values()))[0]
    hosts = [topology.gpus[topology.place(rank)].host for rank in range(first.case.ranks)] if topology.gpus else []
    return _judged([f"rank {rank}" for rank in range(first.case.ranks)], hosts, first.platform, tables, slower)


def _judged(
    names: Sequence[str],
    hosts: Sequence[str],
    platform: str,
    tables: Mapping[str, tuple[Cells, bool]],
    slower: float | None,
) -> ScanVerdict:
    """Return the verdict of tables, each of which says whether its messages went one way."""
    refuse_few(len(names))
    case = Case(COLLECTIVES["sendrecv"], 1, DATATYPES["int8"], NONE, 0, len(names), in_place=False, work=Scan())
    levels = (MemberLevel("node", tuple(hosts)),) if hosts else ()
    members = Members(case, "", platform=platform, names=tuple(names), levels=levels)
    evidence = Evidence(members, usual_slower(platform) if slower is None else slower, tables, table=True)
    for name, (cells, one_way) in tables.items():
        evidence.add(Round(case, "", platform, 0, tuple(cells), tuple(cells.values()), 0.0, one_way), name)
    return evidence.verdict()


def _csv(path: Path) -> tuple[list[str], Cells]:
    """Return the names of a table's members, and the seconds of a gigabyte from one to another."""
    names: dict[str, int] = {}
    cells: dict[tuple[int, int], float] = {}
    lines = (line.decode("utf-8-sig", "replace").rstrip("\r\n") for _, line in read_lines(path, RunFileError))
    for number, line in enumerate(lines, 1):
        row = [cell.strip().strip('"') for cell in line.split(",")]
        if not any(row) or (number == 1 and not any(map(str.isdigit, row[-1]))):  # the names of the columns
            continue
        ends = tuple(names.setdefault(name, len(names)) for name in row[:2])
        match = QUANTITY.fullmatch(row[-1])
        rate = float(match[1]) if match and not match[2] else 0.0
        if len(row) != 3 or not all(row) or not _LEAST < rate < 1 / _LEAST or len(names) > _MOST or ends in cells:
            what = "not sender, receiver and GB/s above 0, with commas between, each pair once"
            raise RunFileError(message(f"{path}, line {number}: {what}"))
        if len(set(ends)) > 1:
            cells[ends[0], ends[1]] = 1 / rate
    return list(names), cells
