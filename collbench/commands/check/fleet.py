"""Outlier nodes of a fleet, by robust statistics, for `collbench check --fleet`.

Each node is compared with the median of alike nodes, at each size and over all sizes.  Distances of logarithms of time
are in units of the spread between nodes: the root of Tukey's biweight midvariance, which outliers hardly change.  The
limit is Student's t with 0.7 (n - 1) degrees of freedom (F. Mosteller and J. Tukey, Data Analysis and Regression, 1977,
chapter 10), with Bonferroni's correction for all nodes and sizes.  Disturbances give times longer tails than Student's
t.  A node is therefore an outlier only if more of its sizes stand out than chance explains.  docs/fleet.md has the
measured error rates.
"""

import json
import math
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from statistics import median
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from collbench.analysis.judgement import LISTED, NO_RATIO, Judgement, Word, overall, worst
from collbench.cli.options import PATH, given, option
from collbench.cli.verdicts import Destinations, head_of, host_lines, junit, junit_suite, line_of
from collbench.commands.check.inputs import FleetCurve, FleetNode, read_fleet
from collbench.commands.check.library import CheckRequest, judge_run
from collbench.errors import UsageError
from collbench.present.columns import Column, csv_text
from collbench.present.terminal import lines as table_lines
from collbench.present.terminal import room, wrapped
from collbench.runfile import DEFAULT
from collbench.stats import Estimate, student
from collbench.units import counted, format_duration, format_rate, format_seconds, format_size, significant

FEWEST = 5  # alike nodes that a comparison needs
SLOWER = 0.05  # default of the smallest difference that matters, as a share of time
PEERS = "the other nodes"
ALIKE = "not judged, alike"  # the reason of a node that no check judged and that is no outlier
_UNLIKE = 0.5  # spread between nodes from which on no node could stand out
_ERROR = 0.05  # false alarms per fleet: half for single sizes, half for all sizes together
_FLOOR = 2e-3  # least spread: rounding of printed times to three digits
_MEDIAN = 1.253  # standard error of a median over that of a mean (normal distribution, many values)

Array = NDArray[np.float64]
Marks = NDArray[np.bool_]
Times = Mapping[str, Mapping[FleetCurve, Mapping[int, float]]]  # by node, curve and bytes; seconds, or ratios of times


class Outlier(NamedTuple):
    """A node that is slower or faster than alike nodes, or than itself before."""

    judgement: Judgement  # ratio: median over `sizes`, with a joint 95 % interval for all outliers
    curve: FleetCurve
    sizes: tuple[int, ...]  # bytes at which it stands out; empty: it stands out over all sizes together
    measured: int  # number of sizes

    def fields(self) -> dict[str, Any]:
        """Return the outlier for JSON."""
        who = {"node": self.judgement.what, "curve": self.curve._asdict()}
        return self.judgement.fields() | who | {"sizes": self.sizes, "measured": self.measured}


@dataclass(frozen=True, eq=False)
class AlikeNodes:
    """Times of alike nodes by node and size, at least FEWEST at each size; NaN if a node has no time."""

    curve: FleetCurve
    nodes: tuple[str, ...]
    sizes: tuple[int, ...]  # bytes
    times: Array  # seconds, or ratios of times between two nights
    outliers: tuple[Outlier, ...] = ()

    @property
    def medians(self) -> Array:
        """The fleet's median time at each size."""
        return np.asarray(np.nanmedian(self.times, axis=0))

    @property
    def spreads(self) -> Array:
        """Robust standard deviation between nodes at each size, relative to the median."""
        return _spread(np.log(self.times))

    @property
    def alike(self) -> bool:
        """Whether the nodes agree enough for one to stand out."""
        return float(self.spreads[-1]) < _UNLIKE


def groups(nodes: Sequence[FleetNode], slower: float = SLOWER) -> list[AlikeNodes]:
    """Return groups of alike nodes, the largest first; outliers differ from the median by the share `slower`."""
    return _with_outliers({node.name: node.curves for node in nodes}, slower, PEERS)


def changes(before: Sequence[FleetNode], after: Sequence[FleetNode], slower: float = SLOWER) -> list[AlikeNodes]:
    """Return the changes of times between two nights; outliers changed unlike the fleet's median."""
    old: Times = {node.name: node.curves for node in before}
    changed: dict[str, dict[FleetCurve, dict[int, float]]] = defaultdict(dict)
    for node in after:
        for curve, times in node.curves.items():
            earlier = old.get(node.name, {}).get(curve, {})
            changed[node.name][curve] = {size: times[size] / earlier[size] for size in times if size in earlier}
    return _with_outliers(changed, slower, "itself before")


def outliers_of(alike: Iterable[AlikeNodes]) -> list[Outlier]:
    """Return the outliers of all groups, the slowest first."""
    every = chain.from_iterable(group.outliers for group in alike)
    return sorted(every, key=lambda outlier: -outlier.judgement.ratio.value)


def judged(nodes: Sequence[FleetNode], alike: Sequence[AlikeNodes]) -> list[Judgement]:
    """Return the judgement of each node: the worse of its check and its comparison with peers; peers win a tie."""
    compared, judgements = names_alike(alike), []
    outliers = {outlier.judgement.what: outlier.judgement for outlier in reversed(outliers_of(alike))}
    for node in nodes:
        silent, other = node.word is Word.UNKNOWN and not node.reason, outliers.get(node.name)
        if not other or not (silent or worst((node.word, other.word)) is other.word):
            facts = (PEERS, node.word, ALIKE) if silent and node.name in compared else ("", node.word, node.reason)
            other = Judgement(node.name, *facts)
        judgements.append(other)
    return judgements


def names_alike(alike: Iterable[AlikeNodes]) -> set[str]:
    """Return the nodes that are compared with others."""
    return set(chain.from_iterable(group.nodes for group in alike if group.alike))


def findings(nodes: Sequence[FleetNode], alike: Sequence[AlikeNodes]) -> tuple[list[str], list[str]]:
    """Return the nodes that a shared setting slows down, and the nodes to exclude.

    A shared setting is assumed if most checks are SLOW; it explains the SLOW nodes that are no outliers.  Nodes to
    exclude are WRONG, slower than the others, or SLOW by their checks without a shared setting.
    """
    outliers = {outlier.judgement.what: outlier.judgement.word for outlier in outliers_of(alike)}
    slow = [node.name for node in nodes if node.word is Word.SLOW and node.name not in outliers]
    checked = [node.word for node in nodes if node.word is not Word.UNKNOWN]
    shared = slow if 2 * checked.count(Word.SLOW) > len(checked) and len(slow) > 1 else []
    excluded = set(slow).difference(shared)
    excluded.update(name for name, word in outliers.items() if word is Word.SLOW)
    return shared, [*excluded.union(node.name for node in nodes if node.word is Word.WRONG)]


def judgement_of(nodes: Sequence[FleetNode], judgements: Sequence[Judgement], alike: Sequence[AlikeNodes]) -> Judgement:
    """Return the judgement of a fleet: the worst word of its judged nodes."""
    shared, compared = set(findings(nodes, alike)[0]), names_alike(alike)
    rest = [each for each in judgements if each.what not in shared]
    rest.sort(key=lambda each: (list(Word).index(each.word), -each.ratio.value if each.ratio.known else 0))
    named = [each for each in rest if each.word.bad or shared][:LISTED]
    kinds = ("alike" if each.reason == ALIKE else f"{'more ' * each.word.bad}{each.word.value}" for each in rest)
    counts = Counter(islice(kinds, len(named), None))
    many = f"{len(shared):,} of {len(nodes):,}" if rest else f"all {len(shared):,}"
    parts = [f"{many} SLOW{', alike' * (shared <= compared)}: a setting, or the wrong --on"] * bool(shared)
    said = (f"{each.what} {each.reason if each.against == PEERS else each.word.value}" for each in named)
    parts.append(", ".join(said))
    if set(counts) != {"alike"}:
        parts.append(", ".join(f"{count:,} {kind}" for kind, count in counts.items()))
    elif not any(parts):
        parts.append("alike")
    checked = sum(node.word is not Word.UNKNOWN for node in nodes)
    if checked < len(nodes):
        parts.append(f"{f'{len(nodes) - checked:,} not' if checked else 'none'} judged against a system")
    against = ["their checks"] * bool(checked) + [PEERS] * bool(compared)
    words = Counter(each.word for each in judgements)
    # A few OK nodes do not make a fleet OK if most are UNKNOWN.
    word = worst(words) if 2 * words[Word.UNKNOWN] > len(nodes) else overall(words)
    ratio = rest[0].ratio if rest and rest[0].word.bad else NO_RATIO
    return Judgement(counted(len(nodes), "node"), " and ".join(against), word, "; ".join(filter(None, parts)), ratio)


def outdated(nodes: Sequence[FleetNode]) -> list[FleetNode]:
    """Return outdated nodes, the oldest first: an hour and four median deviations older than the median."""
    written = [node.modified for node in nodes if node.modified] or [0.0]
    middle = median(written)
    oldest = middle - 3600 - 4 * median(abs(when - middle) for when in written)
    return sorted((node for node in nodes if 0 < node.modified < oldest), key=lambda node: node.modified)


def _with_outliers(fleet: Times, slower: float, against: str) -> list[AlikeNodes]:
    alike = _alike(fleet)
    tests, nodes = sum(group.times.size for group in alike), sum(len(group.nodes) for group in alike)
    several = against == PEERS and len({group.curve.topology for group in alike}) > 1
    return [replace(group, outliers=tuple(_outliers(group, nodes, tests, slower, against, several))) for group in alike]


def _alike(fleet: Times) -> list[AlikeNodes]:
    """Group nodes by curve; leave out sizes that fewer than FEWEST nodes have, and nodes without other sizes."""
    by_curve: dict[FleetCurve, dict[str, Mapping[int, float]]] = defaultdict(dict)
    for name, curves in fleet.items():
        for curve, times in curves.items():
            by_curve[curve][name] = times
    alike = []
    for curve, nodes in by_curve.items():
        counts = Counter(chain.from_iterable(nodes.values()))
        sizes = sorted(size for size, count in counts.items() if count >= FEWEST)
        names = tuple(name for name, times in nodes.items() if not times.keys().isdisjoint(sizes))
        if names:
            rows = [[nodes[name].get(size, math.nan) for size in sizes] for name in names]
            alike.append(AlikeNodes(curve, names, tuple(sizes), np.array(rows)))
    return sorted(alike, key=lambda group: (-len(group.nodes), group.curve))


def _outliers(
    group: AlikeNodes, nodes: int, tests: int, slower: float, against: str, several: bool
) -> Iterator[Outlier]:
    """Yield the outliers of a group; `nodes` and `tests` count nodes and single times of all groups."""
    logs, spreads = np.log(group.times / group.medians), group.spreads
    measured, middles = np.isfinite(logs), np.nanmedian(logs, axis=1, keepdims=True)
    limit, reach = (student(1 - _ERROR / 4 / count, 0.7 * (len(logs) - 1)) for count in (tests, nodes))

    # The sizes of one node scatter less than nodes differ.  With one size, the spread between nodes must do.
    noise = _spread(logs - middles) if logs.shape[1] > 1 else spreads
    for sign, word in ((1, Word.SLOW), (-1, Word.FAST)):
        far = sign * logs > limit * spreads

        # A node that is often far off to both sides has uncertain times: it is no outlier.
        unsure = far.sum(axis=1) < 4 * (-sign * logs > limit * spreads).sum(axis=1)
        single, whole = _beyond_chance(far, measured, nodes), (sign * middles > reach * _spread(middles))[:, 0]
        for row in np.flatnonzero((single | whole) & ~unsure).tolist():
            chosen = far[row] if single[row] else measured[row]
            values = logs[row, chosen]

            # Error of the ratio: the larger of the usual and the node's own scatter, and the error of fleet medians.
            middle, usual = float(np.median(values)), np.mean(noise[chosen] ** 2)
            scatter = (1.4826 * np.median(np.abs(values - middle))) ** 2
            error = _MEDIAN * math.sqrt(max(usual, scatter) / len(values) + np.mean(spreads[chosen] ** 2) / len(logs))
            if abs(middle) < max(math.log1p(slower), reach * error):
                continue
            ratio = Estimate(*(math.exp(middle + side * reach * error) for side in (0, -1, 1)))
            way, than = "slower" if sign > 0 else "faster", "the others" if against == PEERS else "before"
            than += f" on {group.curve.topology}" * several
            reason = f"{significant(100 * abs(ratio.value - 1), 2)} % {way} than {than}"
            judgement = Judgement(group.nodes[row], against, word, reason, ratio, limit=1 + slower)
            sizes = tuple(np.array(group.sizes)[far[row]].tolist()) if single[row] else ()
            yield Outlier(judgement, group.curve, sizes, int(measured[row].sum()))


def _beyond_chance(far: Marks, measured: Marks, nodes: int) -> Marks:
    """Mark nodes with more outlying sizes than chance explains, by the rate of nodes with fewer outlying sizes."""
    from scipy.special import bdtrc  # takes 0.1 s, too long for --help

    count, sizes, chance = far.sum(axis=1), measured.sum(axis=1), np.ones(len(far))
    for many in np.unique(count[count > 0]):
        fewer, same = count < many, count == many
        rate = (count[fewer].sum() + 1) / (sizes[fewer].sum() + 1)
        chance[same] = bdtrc(many - 1.0, sizes[same], rate)
    return np.asarray(nodes * chance < _ERROR / 4)


def _spread(values: Array) -> Array:
    """Return the root of Tukey's biweight midvariance of each column (D. Lax, 1985); NaN counts as missing."""
    away = values - np.nanmedian(values, axis=0)
    units = away / np.maximum(9 * np.nanmedian(np.abs(away), axis=0), _FLOOR)
    inside = np.abs(units) < 1  # False for NaN
    away, squares = np.where(inside, away, 0.0), np.where(inside, units, 0.0) ** 2
    above = np.sum(away**2 * (1 - squares) ** 4, axis=0)
    below = np.sum(np.where(inside, (1 - squares) * (1 - 5 * squares), 0.0), axis=0)
    count = np.count_nonzero(np.isfinite(values), axis=0)
    return np.asarray(np.maximum(np.sqrt(count * above) / np.abs(below), _FLOOR))


_LISTED = 60  # lines of a kind, or names, in the text; JSON has all
_COLUMNS = (
    *FleetCurve._fields,
    *("size_bytes", "time_seconds", "bus_bandwidth_bytes_per_second"),
    *("fleet_median_time_seconds", "time_over_fleet_median", "slow_outlier"),
)

OPTIONS = [
    option(
        "--fleet", "Compare the nodes in FOLDER by check.json, runs or logs; default of --slower: 5 %.", is_flag=True
    ),
    option("--against", "With --fleet: compare with this earlier folder.", type=PATH, metavar="FOLDER"),
    option("--exclude-file", "With --fleet: write the nodes to exclude, one per line.", type=PATH, metavar="FILE"),
    option("--csv", "With --fleet: write a row for each node and size.", type=PATH, metavar="FILE"),
]
_OF_A_FLEET = {str(each.name) for each in OPTIONS}
_OF_BOTH = {"inputs", "on", "nodes", "slower", "as_json", "junit", "quiet", "exits"}


def asked(fleet: bool) -> bool:
    """Return whether a fleet is compared; UsageError if an option does not fit."""
    for name, spelling in given().items():
        if name not in _OF_BOTH and (name in _OF_A_FLEET) is not fleet:
            fix = "does not go with --fleet; leave one of them out" if fleet else "is for --fleet; add --fleet"
            raise UsageError(f"{spelling} {fix}")
    return fleet


def show(options: Mapping[str, Any]) -> int:
    """Print the judgement of a fleet and its changes since an earlier night; write files; return the exit status."""
    folder, *more = options["inputs"] or [DEFAULT]
    if more or (options["nodes"] and not options["on"]):
        raise UsageError(f"--fleet takes one folder, not {more[0]} too" if more else "--nodes is for --on SYSTEM")
    request = CheckRequest(on=options["on"], nodes=options["nodes"])
    judge = partial(judge_run, request, expected=None) if options["on"] else None
    slower = SLOWER if options["slower"] is None else options["slower"]
    nodes, before = read_fleet(folder, judge), read_fleet(options["against"]) if options["against"] else []
    alike, changed = groups(nodes, slower), changes(before, nodes, slower)
    judgements = judged(nodes, alike)
    judgement = judgement_of(nodes, judgements, alike)
    says = f"{judgement.what}: {judgement.reason}"
    shared, excluded = findings(nodes, alike)
    rows = list(_rows(zip(nodes, judgements, strict=True), alike))
    answer = head_of(judgement, socket.gethostname()) | {"line": line_of("plain", judgement.word, says)}
    answer |= {"outliers": [outlier.fields() for outlier in outliers_of(alike)]}
    answer |= {"changes": [outlier.fields() for outlier in outliers_of(changed)]}
    answer |= {"outdated": [node.name for node in outdated(nodes)], "rows": rows}

    # Files are written first: a closed pipe ends the program while it prints.
    documents: dict[str, Callable[[], str]] = {
        "json": lambda: json.dumps(answer, indent=2, allow_nan=False),
        "csv": lambda: csv_text(rows[0], rows),
        "exclude_file": lambda: host_lines(excluded),
        "junit": lambda: junit([junit_suite(f"collbench check --fleet {folder}", "collbench.check", judgements)]),
    }
    to = Destinations(options, documents)
    lost = to.write(lambda name: documents[name]().removesuffix("\n"))
    if not (to.brief or to.printed):
        moved = [*_moved(before, nodes, changed), *_table(changed)] if before else []
        parts = [wrapped(says, room() or len(says))], _table(alike, nodes, shared), moved, _compared(alike, nodes)
        click.echo("".join("\n".join((*part, "", "")) for part in parts if part), nl=False)
    return to.end(judgement.word, line_of(to.exits, judgement.word, says), lost)


def _rows(judged: Iterable[tuple[FleetNode, Judgement]], alike: Sequence[AlikeNodes]) -> Iterator[dict[str, Any]]:
    """Yield a flat record for each node, curve and size, and one for each node without curves."""
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
"""The columns of outliers and of nodes with other findings."""


def _table(alike: Sequence[AlikeNodes], nodes: Sequence[FleetNode] = (), shared: Sequence[str] = ()) -> list[str]:
    """Return a line for each finding: outliers, the slowest first, then failed, missing and outdated nodes."""
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
    """Return the lines on nodes with a result on only one of two nights, and on the changes of the others."""
    old, new = ({node.name for node in night if node.curves} for night in (before, after))
    moves = (("came", sorted(new - old)), ("went", sorted(old - new)))
    lines = [f"{word}: {len(names):,}, {', '.join(names[:_LISTED])}" for word, names in moves if names]
    for group in changed[:_LISTED]:
        least, most = _percent(group.medians.min()), _percent(group.medians.max())
        lines.append(f"median change of {len(group.nodes):,} nodes: {least} to {most}, {group.curve.title}")
    return [wrapped(line, room() or len(line)) for line in lines]


def _compared(groups: Sequence[AlikeNodes], nodes: Sequence[FleetNode]) -> list[str]:
    """Return a line for each group of alike nodes at its largest size, and one on the age of the results."""
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
        why = f"fewer than {FEWEST} nodes have their topology, case and implementation"
        lines.append(f"not compared, since {why}: {len(uncompared):,}, {', '.join(uncompared[:_LISTED])}")
    if ages := sorted(max(1.0, datetime.now(UTC).timestamp() - node.modified) for node in nodes if node.modified):
        first, middle, last = (format_duration(ages[index], 2) for index in (0, len(ages) // 2, -1))
        age_range = f" to {last} ago, median {middle}" if first != last else ""
        lines.append(f"written {first}{age_range} ago")
    return [wrapped(line, room() or len(line)) for line in lines]


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"
