"""What `collbench runs --fleet` prints of a folder of nodes, and the files that it writes."""

import socket
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import click

from collbench.analysis.judgement import EXITS, Judgement, Word
from collbench.cli.options import STANDARD, write_json
from collbench.cli.verdicts import head_of, host_lines, line_of
from collbench.commands.check import fleet
from collbench.commands.check.fleet import AlikeNodes, outdated, outliers_of
from collbench.commands.check.fleet_files import FleetCurve, FleetNode, read_fleet
from collbench.errors import StorageError, writing
from collbench.present.columns import Column, csv_text
from collbench.present.terminal import lines as table_lines
from collbench.present.terminal import room, wrapped
from collbench.runfile.store import replace_whole
from collbench.units import format_duration, format_rate, format_seconds, format_size

_LISTED = 60  # lines of a kind, or names, that are printed; JSON has all
_COLUMNS = (
    *FleetCurve._fields,
    *("size_bytes", "time_seconds", "bus_bandwidth_bytes_per_second"),
    *("fleet_median_time_seconds", "time_over_fleet_median", "slow_outlier"),
)


def show(folder: Path, against: Path | None, as_json: Path | None, **options: Any) -> int:
    """Print what is known of a fleet, or how it differs from an earlier night, write files, return the exit status."""
    slower = fleet.SLOWER if options["slower"] is None else options["slower"]
    nodes, before = read_fleet(folder), read_fleet(against) if against else []
    alike, changed = fleet.groups(nodes, slower), fleet.changes(before, nodes, slower)
    judgements = fleet.judged(nodes, alike)
    judgement = fleet.judgement_of(nodes, judgements, alike)
    line = line_of("plain", judgement.word, f"{judgement.what}: {judgement.reason}")
    rows = list(_rows(zip(nodes, judgements, strict=True), alike))

    # Files first: the reader of the table may stop early.
    bad = [each.what for each in judgements if each.word.bad]
    contents = {"exclude_file": host_lines(bad) if options["exclude_file"] else "", "csv": csv_text(rows[0], rows)}
    for name, content in contents.items():
        if (path := options[name]) == STANDARD:
            click.echo(content.encode(), nl=False)  # as it is, however narrow the terminal
        elif path:
            with writing(path, f"--{name.replace('_', '-')} FILE", StorageError):
                replace_whole(path, content.encode())
    answer = head_of(judgement, socket.gethostname())
    answer |= {"line": line, "outliers": [outlier.fields() for outlier in outliers_of(alike)]}
    answer |= {"changes": [outlier.fields() for outlier in outliers_of(changed)]}
    answer |= {"outdated": [node.name for node in outdated(nodes)], "rows": rows}
    write_json(as_json, answer, allow_nan=False)
    if STANDARD not in (as_json, *(options[name] for name in contents)):
        moved = [*_moved(before, nodes, changed), *_table(changed)] if against else []
        parts = _table(alike, nodes), moved, _compared(alike, nodes)
        click.echo("\n\n".join("\n".join(part) for part in (*parts, [line]) if part))
    return EXITS["plain"][judgement.word]


def _rows(judged: Iterable[tuple[FleetNode, Judgement]], alike: Sequence[AlikeNodes]) -> Iterator[dict[str, Any]]:
    """Yield a flat record for each node, curve and size, and one for each node without any."""
    medians = {group.curve: dict(zip(group.sizes, group.medians.tolist(), strict=True)) for group in alike}
    slow = {(each.judgement.what, each.curve) for each in outliers_of(alike) if each.judgement.word.bad}
    for node, judgement in judged:
        at = str(datetime.fromtimestamp(node.modified, UTC)) if node.modified else None
        facts = {"written_at": at, "node": node.name, "word": judgement.word.value, "reason": judgement.reason}
        if not node.curves:
            yield facts | dict.fromkeys(_COLUMNS)
        for curve, times in node.curves.items():
            for size, seconds in times.items():
                median = medians.get(curve, {}).get(size)
                figures = size, seconds, curve.busbw(size, seconds), median, seconds / median if median else None
                yield facts | dict(zip(_COLUMNS, (*curve, *figures, (node.name, curve) in slow), strict=True))


COLUMNS: tuple[Column[tuple[str, ...]], ...] = (
    Column("node", itemgetter(0)),
    Column("time", itemgetter(1), form=">"),
    Column("95 % interval", itemgetter(2), importance=2),
    Column("sizes", itemgetter(3), importance=1),
    Column("curve", itemgetter(4)),
)
"""Of an outlier, or of a node of which something else is to be said."""


def _table(alike: Sequence[AlikeNodes], nodes: Sequence[FleetNode] = ()) -> list[str]:
    """Return a line for each outlier, the slowest first, then for what failed, has no result, or is outdated."""
    rows = []
    for judgement, curve, sizes, measured in outliers_of(alike):
        time, low, high = map(_percent, judgement.ratio)
        from_on = f", {format_size(sizes[0])} on" if sizes else ""
        count = f"{len(sizes) or measured} of {measured}{from_on}"
        rows.append((judgement.what, time, f"{low} .. {high}", count, curve.title))
    ordered = sorted(nodes, key=lambda node: list(Word).index(node.word))
    rows += [(node.name, node.word.value, "", "", node.reason) for node in ordered if node.reason]
    for node in outdated(nodes):
        age = format_duration(datetime.now(UTC).timestamp() - node.modified, 2)
        rows.append((node.name, node.word.value, "", "", f"written {age} ago, much longer than the others"))
    more = [f"and {len(rows) - _LISTED} more; --json has all"] if len(rows) > _LISTED else []
    return [*table_lines(COLUMNS, rows[:_LISTED]), *more] if rows else []


def _moved(before: Sequence[FleetNode], after: Sequence[FleetNode], changed: Sequence[AlikeNodes]) -> list[str]:
    """Return which nodes have a result on one of two nights only, and by how much times of the others changed."""
    old, new = ({node.name for node in night if node.curves} for night in (before, after))
    moves = (("came", sorted(new - old)), ("went", sorted(old - new)))
    lines = [f"{word}: {len(names):,}, {', '.join(names[:_LISTED])}" for word, names in moves if names]
    for group in changed[:_LISTED]:
        least, most = _percent(group.medians.min()), _percent(group.medians.max())
        lines.append(f"median change of {len(group.nodes):,} nodes: {least} to {most}, {group.curve.title}")
    return [wrapped(line, room() or len(line)) for line in lines]


def _compared(groups: Sequence[AlikeNodes], nodes: Sequence[FleetNode]) -> list[str]:
    """Return a line for each group of alike nodes, at its largest size, and how old all are."""
    lines = []
    for group in groups[:_LISTED]:
        size, seconds = group.sizes[-1], float(group.medians[-1])
        rate = f"{format_size(size)} {format_seconds(seconds)}, {format_rate(group.curve.busbw(size, seconds))} GB/s"
        measured = int((group.times[:, -1] > 0).sum())  # a node without that size has NaN, which is not above 0
        measured_part = f"{measured:,} of them " if measured < len(group.nodes) else ""
        alike = f"{len(group.nodes):,} {'alike' if group.alike else 'too unlike to compare'}, {measured_part}at {rate}"
        lines.append(f"{alike}, spread {100 * float(group.spreads[-1]):.1f} %: {group.curve.title}")
    measured_nodes = {node.name for node in nodes if node.curves}
    if uncompared := sorted(measured_nodes.difference(*(group.nodes for group in groups))):
        why = f"fewer than {fleet.FEWEST} nodes have their topology, case and implementation"
        lines.append(f"compared with nothing, since {why}: {len(uncompared):,}, {', '.join(uncompared[:_LISTED])}")
    if ages := sorted(max(1.0, datetime.now(UTC).timestamp() - node.modified) for node in nodes if node.modified):
        first, middle, last = (format_duration(ages[index], 2) for index in (0, len(ages) // 2, -1))
        age_range = f" to {last} ago, half of them at most {middle}" if first != last else ""
        lines.append(f"written {first}{age_range} ago")
    return [wrapped(line, room() or len(line)) for line in lines]


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"
