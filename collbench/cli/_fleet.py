"""What `collbench runs --fleet` prints of a folder of nodes, and the files that it writes."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from collbench.analysis.fleet import FEWEST, SLOWER, Group, Outlier, changes, groups
from collbench.cli.options import STANDARD, write_json
from collbench.cli.tables import Table, room, wrapped
from collbench.errors import StorageError, writing
from collbench.host.sanitize import cell
from collbench.plots import fleet as picture
from collbench.plots import ratios
from collbench.reports.verdicts import replace_whole
from collbench.runfile.fleet import FAIL, UNREADABLE, Node, read_fleet
from collbench.runfile.schema import case_fields
from collbench.runfile.store import optional
from collbench.units import format_rate, format_seconds, format_size

_SIZE = Table(
    "{size:>9} {time:>9} {busbw:>8} {spread:>7}  {ends}",
    ("spread", "busbw"),
    {"busbw": "GB/s", "ends": "fastest to slowest"},
)
_LISTED, _GROUPS, _NAMES = 60, 8, 4  # nodes, groups, names of a small group that are printed; JSON has all
_WIDEST = 24  # characters of a node's name in a column
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # a name that a scheduler takes as a single node


def show(folder: Path, against: Path | None, as_json: Path | None, **options: Any) -> None:
    """Print what is known of a fleet, or how it differs from an earlier night, and write the files asked for."""
    ratios.check(options["plot"])  # before anything is read
    slower = SLOWER if options["slower"] is None else options["slower"]
    nodes, before = read_fleet(folder), read_fleet(against) if against else []
    found = groups(nodes, slower)
    changed = changes(before, nodes, slower) if against else []
    came, went = _came_and_went(before, nodes) if against else ([], [])
    # Files first: whoever reads the table may stop early.
    if options["exclude_file"]:
        _exclude(options["exclude_file"], nodes, found)
    if options["csv"] or options["parquet"]:
        _write_rows(options["csv"], options["parquet"], list(_rows(nodes, found)))
    figures = picture.draw(found, options["plot"])
    write_json(as_json, _document(nodes, found, changed, came, went), allow_nan=False)
    if as_json != STANDARD:
        table = (*_listed(nodes, found), *_changes(changed, came, went), *_tables(found), _summary(nodes))
        click.echo("\n".join((*table, *(f"figure: {path}" for path in figures))))


# ------------------------------------------------------------------------------------------------------------ the table


def _outliers(found: Iterable[Group]) -> list[Outlier]:
    """Return outliers, the slowest first."""
    return sorted((outlier for group in found for outlier in group.outliers), key=lambda outlier: -outlier.ratio)


def _listed(nodes: Sequence[Node], found: Sequence[Group]) -> Iterator[str]:
    """Yield a line for each node that stands out: the slowest first, then what failed, then what has no result."""
    said = _said(found)
    for status, word in ((FAIL, "FAIL"), (UNREADABLE, "no result")):
        for node in nodes:
            if node.status == status:
                said.setdefault(node.name, []).append(f"{word}: {node.reason}")
    yield from _named(said)
    if said:
        yield ""


def _said(found: Iterable[Group]) -> dict[str, list[str]]:
    """Return what is said of each node that stands out, the slowest first."""
    outliers = _outliers(found)
    several = len({outlier.curve for outlier in outliers}) > 1
    said: dict[str, list[str]] = {}
    for outlier in outliers:
        words = f"{outlier.words} ({outlier.curve.title})" if several else outlier.words
        said.setdefault(outlier.node, []).append(words)
    return said


def _named(lines: Mapping[str, Sequence[str]]) -> Iterator[str]:
    width = min(_WIDEST, max(map(len, lines), default=0))
    table = Table(f"{{node:<{width}}}  {{words}}")
    for node, words in list(lines.items())[:_LISTED]:
        yield table.row(node=node, words="; ".join(words))
    if len(lines) > _LISTED:
        yield f"and {len(lines) - _LISTED} nodes more; --json has all"


def _changes(changed: Sequence[Group], came: Sequence[str], went: Sequence[str]) -> Iterator[str]:
    for group in changed:
        shift = f"the median changed by {_share(group.medians.min())} to {_share(group.medians.max())}"
        words = f"{len(group.nodes):,} nodes in both, {shift}" + ("" if group.enough else _too_few())
        yield _wrapped(f"{group.curve.title}: {words}")
    yield from _named(_said(changed))
    for what, names in (("came", came), ("went", went)):
        if names:
            yield _wrapped(f"{what}: {_some(names, _LISTED)}")
    if changed or came or went:
        yield ""


def _tables(found: Sequence[Group]) -> Iterator[str]:
    for group in found[:_GROUPS]:
        count = f"{len(group.nodes):,} node{'s' if len(group.nodes) > 1 else ''}"
        if not group.enough:
            yield from (_wrapped(f"{group.curve.title}: {count}, {_some(group.nodes, _NAMES)}{_too_few()}"), "")
            continue
        yield from (_wrapped(f"{group.curve.title}: {count}"), _SIZE.heading())
        for ratios_of, size, seconds, busbw, spread in zip(
            group.ratios.T, group.sizes, group.medians, group.busbw, group.spreads, strict=True
        ):
            known = ratios_of[ratios_of == ratios_of]  # not NaN
            yield _SIZE.row(
                size=format_size(size),
                time=format_seconds(seconds),
                busbw=format_rate(busbw) if busbw else "",
                spread=f"{100 * spread:.1f} %",
                ends=f"{_share(known.min())} to {_share(known.max())}",
            )
        yield ""
    if len(found) > _GROUPS:
        yield f"and {len(found) - _GROUPS} groups of alike nodes more; --json has all"


def _too_few() -> str:
    return f"; fewer than {FEWEST} nodes are alike, so nothing can be concluded"


def _share(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _some(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _wrapped(line: str) -> str:
    return wrapped(line, room() or len(line))


def _summary(nodes: Sequence[Node]) -> str:
    counts = Counter(node.status for node in nodes)
    words = ", ".join(f"{counts[status]:,} {status}" for status in ("OK", "WARN", "FAIL", "UNKNOWN"))
    lost = f", {counts[UNREADABLE]:,} without a readable result" if counts[UNREADABLE] else ""
    return _wrapped(f"{len(nodes):,} nodes: {words}{lost}")


def _came_and_went(before: Sequence[Node], after: Sequence[Node]) -> tuple[list[str], list[str]]:
    """Return the names of nodes with a result in `after` alone, and in `before` alone."""
    old, new = ({node.name for node in nodes if node.status != UNREADABLE} for nodes in (before, after))
    return sorted(new - old), sorted(old - new)


# ------------------------------------------------------------------------------------------------------------ documents


def _document(
    nodes: Sequence[Node], found: Sequence[Group], changed: Sequence[Group], came: Sequence[str], went: Sequence[str]
) -> dict[str, Any]:
    return {
        "nodes": [{"node": node.name, "status": node.status, "reason": node.reason} for node in nodes],
        "groups": [_group_fields(group) for group in found],
        "outliers": [_outlier_fields(outlier) for outlier in _outliers(found)],
        "changes": [_outlier_fields(outlier) for outlier in _outliers(changed)],
        "came": came,
        "went": went,
    }


def _curve_fields(group: Group | Outlier) -> dict[str, Any]:
    fields = case_fields(group.curve.case) | {"implementation": group.curve.implementation}
    del fields["nbytes"]
    return {"topology": group.curve.where} | fields


def _group_fields(group: Group) -> dict[str, Any]:
    spreads = group.spreads.tolist() if group.enough else [None] * len(group.sizes)
    rows = zip(group.sizes, group.medians.tolist(), group.busbw.tolist(), spreads, strict=True)
    sizes = [dict(zip(("nbytes", "seconds", "busbw", "spread"), row, strict=True)) for row in rows]
    return _curve_fields(group) | {"nodes": len(group.nodes), "enough": group.enough, "sizes": sizes}


def _outlier_fields(outlier: Outlier) -> dict[str, Any]:
    figures = {"ratio": outlier.ratio, "low": outlier.low, "high": outlier.high}
    return {"node": outlier.node} | _curve_fields(outlier) | figures | {"sizes": outlier.sizes, "words": outlier.words}


def _rows(nodes: Sequence[Node], found: Sequence[Group]) -> Iterator[dict[str, Any]]:
    """Yield a flat record for each node and size, and one for each node without any."""
    medians = {group.curve: dict(zip(group.sizes, group.medians.tolist(), strict=True)) for group in reversed(found)}
    marked = {(outlier.node, outlier.curve): outlier for outlier in _outliers(found)}
    fields = {group.curve: _curve_fields(group) for group in found}
    for node in nodes:
        at = datetime.fromtimestamp(node.modified, UTC) if node.modified else None
        facts = {"written_at": at, "node": node.name, "status": node.status, "reason": node.reason}
        empty = dict.fromkeys(_FIGURES) | dict.fromkeys(_CASE)
        if not node.curves:
            yield facts | empty
        for curve, figures in node.curves.items():
            marks = marked.get((node.name, curve))
            for nbytes, figure in figures.items():
                median = medians[curve].get(nbytes)
                values = nbytes, figure.seconds, curve.busbw(nbytes, figure.seconds), median
                more = figure.seconds / median if median else None, marks is not None and marks.slower
                yield facts | fields[curve] | dict(zip(_FIGURES, values + more, strict=True))


_CASE = ("topology", "collective", "dtype", "redop", "root", "ranks", "in_place", "implementation")
_FIGURES = (
    *("size_bytes", "time_seconds", "bus_bandwidth_bytes_per_second"),
    *("fleet_median_time_seconds", "time_over_fleet_median", "slow_outlier"),
)


def _write_rows(as_csv: Path | None, parquet: Path | None, rows: Sequence[dict[str, Any]]) -> None:
    if as_csv:
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: cell(value) for name, value in row.items()})  # no cell is taken for a formula
        with writing(as_csv, "--csv FILE", StorageError):
            replace_whole(as_csv, text.getvalue().encode())
    if parquet:
        sink = io.BytesIO()
        table = optional("pyarrow").Table.from_pylist(rows)
        optional("pyarrow.parquet").write_table(table, sink)
        with writing(parquet, "--parquet FILE", StorageError):
            replace_whole(parquet, sink.getvalue())


def _exclude(path: Path, nodes: Sequence[Node], found: Sequence[Group]) -> None:
    """Write the names of the nodes that are slow or failed, a line each, as schedulers take them."""
    names = {outlier.node for outlier in _outliers(found) if outlier.slower}
    names |= {node.name for node in nodes if node.status == FAIL}
    unfit = sorted(name for name in names if not _HOST.fullmatch(name))
    if unfit:
        click.echo(f"not in {path}, since no host is called that: {_some(unfit, _NAMES)}", err=True)
    lines = "".join(f"{name}\n" for name in sorted(names.difference(unfit)))
    with writing(path, "--exclude-file FILE", StorageError):
        replace_whole(path, lines.encode())
