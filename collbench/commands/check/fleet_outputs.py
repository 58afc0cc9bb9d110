"""Print the judgement of a fleet (`collbench check --fleet`) and write its files."""

import json
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any

import click

from collbench.analysis.judgement import EXITS, Judgement, Word
from collbench.cli.options import PATH, STANDARD, given, option
from collbench.cli.verdicts import head_of, host_lines, junit, junit_suite, line_of, write_verdict
from collbench.commands.check import fleet
from collbench.commands.check.fleet import AlikeNodes, outdated, outliers_of
from collbench.commands.check.inputs import FleetCurve, FleetNode, read_fleet
from collbench.commands.check.library import CheckRequest, judge_run
from collbench.errors import StorageError, UsageError
from collbench.present.columns import Column, csv_text
from collbench.present.terminal import lines as table_lines
from collbench.present.terminal import room, wrapped
from collbench.runfile import DEFAULT
from collbench.units import format_duration, format_rate, format_seconds, format_size

_LISTED = 60  # lines of a kind, or names, that are printed; JSON has all
_COLUMNS = (
    *FleetCurve._fields,
    *("size_bytes", "time_seconds", "bus_bandwidth_bytes_per_second"),
    *("fleet_median_time_seconds", "time_over_fleet_median", "slow_outlier"),
)

OPTIONS = [
    option("--fleet", "Compare the nodes in FOLDER by check.json, runs or logs; --slower is 5 % then.", is_flag=True),
    option("--against", "Of a fleet: what changed since this folder was made.", type=PATH, metavar="FOLDER"),
    option("--exclude-file", "Of a fleet: write the names of its outliers, a line each.", type=PATH, metavar="FILE"),
    option("--csv", "Of a fleet: write a row for each node and size.", type=PATH, metavar="FILE"),
]
_OF_A_FLEET = {str(each.name) for each in OPTIONS}
_OF_BOTH = {"inputs", "on", "nodes", "slower", "as_json", "junit", "quiet", "exits"}


def asked(fleet: bool) -> bool:
    """Return whether a fleet is to be compared; UsageError where an option is for something else."""
    for name, spelling in given().items():
        if name not in _OF_BOTH and (name in _OF_A_FLEET) is not fleet:
            raise UsageError(f"{spelling} is for {'other checks; leave it out, or --fleet' if fleet else '--fleet'}")
    return fleet


def show(options: Mapping[str, Any]) -> int:
    """Print what is known of a fleet, or how it differs from an earlier night, write files, return the exit status."""
    folder, *more = options["inputs"] or [DEFAULT]
    if more or (options["nodes"] and not options["on"]):
        raise UsageError(f"--fleet takes one folder, not {more[0]} too" if more else "--nodes is for --on SYSTEM")
    request = CheckRequest(on=options["on"], nodes=options["nodes"])
    judge = partial(judge_run, request, expected=None) if options["on"] else None
    slower = fleet.SLOWER if options["slower"] is None else options["slower"]
    nodes, before = read_fleet(folder, judge), read_fleet(options["against"]) if options["against"] else []
    alike, changed = fleet.groups(nodes, slower), fleet.changes(before, nodes, slower)
    judgements = fleet.judged(nodes, alike)
    judgement = fleet.judgement_of(nodes, judgements, alike)
    says = f"{judgement.what}: {judgement.reason}"
    shared, excluded = fleet.findings(nodes, alike)
    rows = list(_rows(zip(nodes, judgements, strict=True), alike))
    answer = head_of(judgement, socket.gethostname()) | {"line": line_of("plain", judgement.word, says)}
    answer |= {"outliers": [outlier.fields() for outlier in outliers_of(alike)]}
    answer |= {"changes": [outlier.fields() for outlier in outliers_of(changed)]}
    answer |= {"outdated": [node.name for node in outdated(nodes)], "rows": rows}

    # Files first: the reader of the table may stop early.
    outputs: dict[str, Callable[[], str]] = {
        "as_json": lambda: json.dumps(answer, indent=2, allow_nan=False),
        "csv": lambda: csv_text(rows[0], rows),
        "exclude_file": lambda: host_lines(excluded),
        "junit": lambda: junit([junit_suite(f"collbench check --fleet {folder}", "collbench.check", judgements)]),
    }
    paths = {name: options[name] for name in outputs if options[name]}
    lost = False
    for name, path in paths.items():
        try:
            write_verdict(name.removeprefix("as_"), path, outputs[name]().removesuffix("\n"))
        except StorageError as error:  # the verdict is not lost with it
            click.echo(f"collbench: error: {error}", err=True)
            lost = True
    if not (options["quiet"] or options["exits"] != "plain" or STANDARD in paths.values()):
        moved = [*_moved(before, nodes, changed), *_table(changed)] if before else []
        parts = [wrapped(says, room() or len(says))], _table(alike, nodes, shared), moved, _compared(alike, nodes)
        click.echo("".join("\n".join((*part, "", "")) for part in parts if part), nl=False)
    if STANDARD not in paths.values():
        click.echo(line_of(options["exits"], judgement.word, says))
    return EXITS[options["exits"]][judgement.word] or int(lost and options["exits"] == "plain")


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
    Column("", itemgetter(1)),
    Column("time", itemgetter(2), form=">"),
    Column("95 % interval", itemgetter(3), importance=2),
    Column("sizes", itemgetter(4), importance=1),
    Column("curve", itemgetter(5)),
)
"""Of an outlier, or of a node of which something else is to be said."""


def _table(alike: Sequence[AlikeNodes], nodes: Sequence[FleetNode] = (), shared: Sequence[str] = ()) -> list[str]:
    """Return a line for each outlier, the slowest first, then for what failed, has no result, or is outdated.

    Nodes that share a finding have one line.
    """
    rows = []
    for judgement, curve, sizes, measured in outliers_of(alike):
        time, low, high = map(_percent, judgement.ratio)
        from_on = f", {format_size(sizes[0])} on" if sizes else ""
        count = f"{len(sizes) or measured} of {measured}{from_on}"
        rows.append((judgement.what, judgement.word.value, time, f"{low} .. {high}", count, curve.title))
    names = dict.fromkeys(shared, "") | {name: f"{name} and {len(shared) - 1:,} more" for name in shared[:1]}
    for node in sorted(nodes, key=lambda node: list(Word).index(node.word)):
        if node.reason and (name := names.get(node.name, node.name)):
            rows.append((name, node.word.value, "", "", "", node.reason))
    for node in outdated(nodes):
        age = format_duration(datetime.now(UTC).timestamp() - node.modified, 2)
        rows.append((node.name, node.word.value, "", "", "", f"written {age} ago, much longer than the others"))
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
