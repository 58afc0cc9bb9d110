"""What `collbench runs --fleet` prints of a folder of nodes, and the files that it writes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import click

from collbench.cli.options import STANDARD, write_json
from collbench.cli.verdicts import host_lines
from collbench.commands.runs.fleet import FEWEST, SLOWER, AlikeNodes, Outlier, changes, groups, outdated
from collbench.commands.runs.fleet_files import FAIL, STATUSES, FleetCurve, FleetNode, read_fleet
from collbench.errors import StorageError, writing
from collbench.present.columns import Column, csv_text
from collbench.present.terminal import lines as table_lines
from collbench.present.terminal import room, wrapped
from collbench.runfile.store import replace_whole
from collbench.units import counted, format_duration, format_rate, format_seconds, format_size

_LISTED = 60  # lines of a kind, or names, that are printed; JSON has all
_UNLIKE = 0.5  # spread between nodes from which on none could stand out
_COLUMNS = (
    *FleetCurve._fields,
    *("size_bytes", "time_seconds", "bus_bandwidth_bytes_per_second"),
    *("fleet_median_time_seconds", "time_over_fleet_median", "slow_outlier"),
)


def show(folder: Path, against: Path | None, as_json: Path | None, **options: Any) -> None:
    """Print what is known of a fleet, or how it differs from an earlier night, and write the files asked for."""
    slower = SLOWER if options["slower"] is None else options["slower"]
    nodes, before = read_fleet(folder), read_fleet(against) if against else []
    alike, changed = groups(nodes, slower), changes(before, nodes, slower)
    rows = list(_rows(nodes, alike))

    # Files first: the reader of the table may stop early.
    contents = {"exclude_file": _excluded(rows) if options["exclude_file"] else "", "csv": csv_text(rows[0], rows)}
    for name, content in contents.items():
        if (path := options[name]) == STANDARD:
            click.echo(content.encode(), nl=False)  # as it is, however narrow the terminal
        elif path:
            with writing(path, f"--{name.replace('_', '-')} FILE", StorageError):
                replace_whole(path, content.encode())
    plain = [row | {"written_at": row["written_at"] and str(row["written_at"])} for row in rows]
    old = [node.name for node in outdated(nodes)]
    answer = {"outliers": _fields(alike), "changes": _fields(changed), "outdated": old, "rows": plain}
    write_json(as_json, answer, allow_nan=False)
    if STANDARD not in (as_json, *(options[name] for name in contents)):
        moved = [*_moved(before, nodes, changed), *_table(changed)] if against else []
        parts = _table(alike, nodes), moved, _compared(alike, nodes)
        click.echo("\n\n".join("\n".join(part) for part in parts if part))


def _rows(nodes: Sequence[FleetNode], alike: Sequence[AlikeNodes]) -> Iterator[dict[str, Any]]:
    """Yield a flat record for each node, curve and size, and one for each node without any."""
    medians = {group.curve: dict(zip(group.sizes, group.medians.tolist(), strict=True)) for group in alike}
    slow = {(outlier.node, outlier.curve) for outlier in _outliers(alike) if outlier.ratio.value > 1}
    for node in nodes:
        at = datetime.fromtimestamp(node.modified, UTC) if node.modified else None
        facts = {"written_at": at, "node": node.name, "status": node.status, "reason": node.reason}
        if not node.curves:
            yield facts | dict.fromkeys(_COLUMNS)
        for curve, times in node.curves.items():
            for size, seconds in times.items():
                median = medians.get(curve, {}).get(size)
                figures = size, seconds, curve.busbw(size, seconds), median, seconds / median if median else None
                yield facts | dict(zip(_COLUMNS, (*curve, *figures, (node.name, curve) in slow), strict=True))


def _outliers(alike: Iterable[AlikeNodes]) -> list[Outlier]:
    """Return outliers, the slowest first."""
    every = chain.from_iterable(group.outliers for group in alike)
    return sorted(every, key=lambda outlier: -outlier.ratio.value)


def _fields(alike: Iterable[AlikeNodes]) -> list[dict[str, Any]]:
    records = []
    for node, curve, ratio, sizes, measured in _outliers(alike):
        who = {"node": node, "curve": curve._asdict()}
        records.append(who | ratio.fields("ratio") | {"sizes": sizes, "measured": measured})
    return records


def _excluded(rows: Sequence[dict[str, Any]]) -> str:
    """Return the names of the nodes that are slow or failed, a line each, as schedulers take them."""
    return host_lines(row["node"] for row in rows if row["slow_outlier"] or row["status"] == FAIL)


class FleetLine(NamedTuple):
    """A row: an outlier, or a node of which something else is to be said."""

    node: str
    time: str
    interval: str
    sizes: str
    curve: str


COLUMNS: tuple[Column[FleetLine], ...] = (
    Column("node", attrgetter("node")),
    Column("time", attrgetter("time"), form=">"),
    Column("95 % interval", attrgetter("interval"), importance=2),
    Column("sizes", attrgetter("sizes"), importance=1),
    Column("curve", attrgetter("curve")),
)


def _table(alike: Sequence[AlikeNodes], nodes: Sequence[FleetNode] = ()) -> list[str]:
    """Return a line for each outlier, the slowest first, then for what failed, has no result, or is outdated."""
    rows = []
    for outlier in _outliers(alike):
        time, low, high = map(_percent, outlier.ratio)
        from_on = f", {format_size(outlier.sizes[0])} on" if outlier.sizes else ""
        sizes = f"{len(outlier.sizes) or outlier.measured} of {outlier.measured}{from_on}"
        rows.append(FleetLine(outlier.node, time, f"{low} .. {high}", sizes, outlier.curve.title))
    ordered = sorted(nodes, key=lambda node: STATUSES.index(node.status))
    rows += [FleetLine(node.name, node.status, "", "", node.reason) for node in ordered if node.reason]
    for node in outdated(nodes):
        age = format_duration(datetime.now(UTC).timestamp() - node.modified, 2)
        rows.append(FleetLine(node.name, node.status, "", "", f"written {age} ago, much longer than the others"))
    more = [f"and {len(rows) - _LISTED} more; --json has all"] if len(rows) > _LISTED else []
    return [*table_lines(COLUMNS, rows[:_LISTED]), *more] if rows else []


def _moved(before: Sequence[FleetNode], after: Sequence[FleetNode], changed: Sequence[AlikeNodes]) -> list[str]:
    """Return which nodes have a result on one of two nights only, and by how much times of the others changed."""
    old, new = _with_result(before), _with_result(after)
    lines = []
    for word, names in (("came", sorted(new - old)), ("went", sorted(old - new))):
        if names:
            lines.append(f"{word}: {len(names):,}, {', '.join(names[:_LISTED])}")
    for group in changed[:_LISTED]:
        least, most = _percent(group.medians.min()), _percent(group.medians.max())
        lines.append(f"median change of {len(group.nodes):,} nodes: {least} to {most}, {group.curve.title}")
    return [wrapped(line, room() or len(line)) for line in lines]


def _with_result(nodes: Sequence[FleetNode]) -> set[str]:
    return {node.name for node in nodes if node.curves}


def _compared(groups: Sequence[AlikeNodes], nodes: Sequence[FleetNode]) -> list[str]:
    """Return a line for each group of alike nodes, at its largest size, and a summary of all nodes."""
    lines = []
    for group in groups[:_LISTED]:
        size, seconds = group.sizes[-1], float(group.medians[-1])
        rate = f"{format_size(size)} {format_seconds(seconds)}, {format_rate(group.curve.busbw(size, seconds))} GB/s"
        # A node without that size has NaN, which is not above 0.
        measured, spread = int((group.times[:, -1] > 0).sum()), float(group.spreads[-1])
        alike = "alike" if spread < _UNLIKE else "too unlike to compare"
        measured_part = f"{measured:,} of them " if measured < len(group.nodes) else ""
        lines.append(
            f"{len(group.nodes):,} {alike}, {measured_part}at {rate}, spread {100 * spread:.1f} %: {group.curve.title}"
        )
    uncompared = sorted(_with_result(nodes).difference(*(group.nodes for group in groups)))
    if uncompared:
        why = f"fewer than {FEWEST} nodes have their topology, case and implementation"
        lines.append(f"compared with nothing, since {why}: {len(uncompared):,}, {', '.join(uncompared[:_LISTED])}")
    if ages := sorted(max(1.0, datetime.now(UTC).timestamp() - node.modified) for node in nodes if node.modified):
        first, middle, last = (format_duration(ages[index], 2) for index in (0, len(ages) // 2, -1))
        age_range = f" to {last} ago, half of them at most {middle}" if first != last else ""
        lines.append(f"written {first}{age_range} ago")
    counts = Counter(node.status for node in nodes)
    statuses = ", ".join(f"{counts[status]:,} {status}" for status in STATUSES if counts[status])
    return [wrapped(line, room() or len(line)) for line in (*lines, f"{counted(len(nodes), 'node')}: {statuses}")]


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"
