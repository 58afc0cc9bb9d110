"""Output of a check: text, JSON, JUnit, Nagios and Prometheus metrics.

Source of the metrics' names and labels: NCCL plugins/profiler/inspector/inspector_prom.cc.
"""

import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from collbench.analysis.judgement import EXITS, Judgement, Word, shortened, worst
from collbench.cli.verdicts import STATUS_METRIC, braced, gauges, head_of, junit, junit_suite, line_of
from collbench.commands.check.judge import BANDWIDTH, CheckedCurve, CheckedSize, CheckResult
from collbench.commands.check.library import JudgedInput
from collbench.present.columns import Column, data, record
from collbench.present.terminal import Table
from collbench.present.terminal import lines as table_lines
from collbench.results.base import CaseResult
from collbench.results.disturbed import disturbed_count_in_words
from collbench.runfile.schema import case_fields
from collbench.stats import number
from collbench.units import counted, format_range, format_rate, format_seconds, format_size, significant


def lines(result: CheckResult) -> Iterator[str]:
    """Yield the lines of the full judgement, correctness first."""
    yield result.correctness.in_words()
    why = "; ".join(dict.fromkeys(curve.remark for curve in result.curves)) or result.no_verdict
    yield f"compared with {result.compared or f'nothing: {why}'}"
    yield from (f"note: {remark}" for remark in (*result.remarks, *result.notes))
    for curve in result.curves:
        yield ""
        yield from _curve_lines(curve if result.compared else replace(curve, remark=""))
    yield ""
    if result.disturbed:
        yield disturbed_count_in_words(result.disturbed, result.rows)
    if result.hint:
        yield result.hint


def _curve_lines(curve: CheckedCurve) -> Iterator[str]:
    yield curve.name + (f", as {curve.against}" if curve.against else "")
    shared = curve.sizes[0].row.note.shared  # ranks on one GPU have no bus between them
    table = Table(column for column in SIZES if not (shared and column.name == "busbw"))
    yield table.heading()
    yield from map(table.row, curve.sizes)
    if curve.remark:
        yield f"{curve.word.value}: {curve.remark}"
    if curve.word in (Word.FAST, Word.OK):
        yield str(curve.sight)
    yield from (f"  {words}" for words in curve.details)
    for place, (why, fix) in enumerate(curve.reasons, 1):
        yield from (f"  {place}. {'Likely' if place == 1 else 'Or'}: {why}", f"     {fix}")


def line(result: CheckResult, exits: str) -> str:
    """Return the line of a verdict in the format of `exits`, the program that reads the exit status."""
    names = ",".join(result.collectives)
    if exits == "npd":  # node problem detector cuts messages: the topology would leave no room for the verdict
        short = names if len(result.collectives) < 3 else f"{len(result.collectives)} collectives"
        return line_of(exits, result.word, f"{short}: {result.words}")
    printed = line_of(exits, result.word, f"{result.judgement.what}: {result.words}")
    performance = _performance(result) if exits == "nagios" else ()
    return " | ".join(filter(None, (printed, " ".join(performance))))


def _performance(result: CheckResult) -> list[str]:
    """Return Nagios' performance data; values in a range raise no alarm: `430:` is 430 or more, `50` is 50 or less."""
    items: dict[str, str] = {}
    # Sorted by time: of sizes with the same label, the slowest is written last and stays.
    for size in sorted(result.sizes, key=lambda size: size.seconds):
        name = f"{size.row.case.collective.name}_{format_size(size.row.case.nbytes)}_{size.row.implementation}"
        label = re.sub(r"[^A-Za-z0-9_.-]", "", name)
        seconds, longest = size.seconds, size.expected * size.judgement.limit
        value, limit, unit, colon = 1e6 * seconds, 1e6 * longest, "us", ""
        if size.row.busbw and size.row.case.nbytes >= BANDWIDTH:
            label += "_GBps"
            value, limit, unit, colon = size.busbw(seconds) / 1e9, size.busbw(longest) / 1e9, "", ":"
        # Nagios does not read exponents.
        alarm = "" if math.isnan(limit) else f";;{significant(limit, 6)}{colon}"
        items[label] = f"{label}={significant(value, 6)}{unit}{alarm}"
    return list(items.values())


_COUNT = re.compile(r"^\d+ (x |ranks$)")  # already in the column of ranks


def word(judged: Sequence[JudgedInput]) -> Word:
    """Return the worst word; a refused input is UNKNOWN."""
    return worst(each.result.word for each in judged)


def summary(judged: Sequence[JudgedInput]) -> str:
    """Return `43 inputs: 2 SLOW, 12 UNKNOWN, 20 OK, 9 refused; all_reduce.log SLOW, ...`."""
    counts = Counter("refused" if each.refused else each.result.word.value for each in judged)
    bad = [f"{each.name} {each.result.word.value}" for each in judged if each.result.word.bad]
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return "; ".join(filter(None, (f"{counted(len(judged), 'input')}: {kinds}", shortened(bad))))


def _busbw(each: JudgedInput) -> float | None:
    rows = [size.row for size in each.result.sizes]
    rates = [row.busbw for row in rows if row.case.ranks > 1 and not row.note.shared]
    return max(rates, default=0.0) or None


def _ranks(each: JudgedInput) -> str:
    ranks = dict.fromkeys(size.row.case.ranks for size in each.result.sizes)
    return ", ".join(map(str, ranks))


INPUTS: tuple[Column[JudgedInput], ...] = (
    Column("input", lambda each: each.name, key="input"),
    Column("collective", lambda each: ",".join(each.result.collectives), importance=30),
    Column("ranks", _ranks, importance=20, form=">"),
    Column("GPU", lambda each: _COUNT.sub("", each.result.where), importance=10),
    Column("busbw", _busbw, format_rate, 40, ">"),
    Column("ratio", lambda each: number(each.result.judgement.ratio.value), "{:.2f}x".format, form=">"),
    Column("", lambda each: each.result.word.value, form="<"),
)
"""The columns of several inputs; `busbw` is the largest of an input, `ratio` that of its most telling size."""


def shown(judged: Sequence[JudgedInput], verbose: bool) -> Iterator[str]:
    """Yield one judgement in full; of several a table, faults and refused inputs, with `verbose` also in full."""
    if len(judged) == 1:
        yield from lines(judged[0].result)
        return
    read = [each for each in judged if not each.refused]
    if verbose:
        for each in read:
            yield from ("", f"{each.name}: {each.result.line}", *lines(each.result))
    if read:
        yield from table_lines(INPUTS, _without_folder(read))
        yield ""
    for each in read:
        if each.result.word.bad and not verbose:
            yield f"{each.name}: {each.result.words}"
    for each in judged:
        if each.refused:
            yield f"refused: {each.result.no_verdict}"


def _without_folder(judged: Sequence[JudgedInput]) -> list[JudgedInput]:
    """Return the judgements with the names of inputs relative to their common folder."""
    parents = {Path(each.name).parent for each in judged}
    if len({parent.is_absolute() for parent in parents}) > 1:
        return list(judged)
    folder = os.path.commonpath(parents)
    return [replace(each, name=str(Path(each.name).relative_to(folder))) for each in judged]


def last_line(judged: Sequence[JudgedInput], exits: str) -> str:
    """Return the line of one verdict or of several, in the format of `exits`."""
    return line(judged[0].result, exits) if len(judged) == 1 else line_of(exits, word(judged), summary(judged))


def _band(size: CheckedSize) -> str:
    low, high = (size.expected * ratio for ratio in size.judgement.usual)
    return "" if math.isnan(high) else format_range(low, high, format_seconds)


SIZES: tuple[Column[CheckedSize], ...] = (
    Column("size", lambda size: size.row.case.nbytes, format_size, form=">9"),
    Column("time", lambda size: size.seconds, format_seconds, form=">9", key="seconds"),
    Column("expected", lambda size: number(size.expected), format_seconds, 2, ">9", "expected_seconds"),
    Column("band", _band, importance=3, form=">19"),
    Column("ratio", lambda size: number(size.off), "{:.2f}x".format, form=">7", key="ratio"),
    Column("busbw", lambda size: size.busbw(size.seconds), format_rate, 1, ">8", "busbw"),
    Column("", lambda size: size.judgement.says, key="says"),
    data("rounds", lambda size: size.rounds),
)
"""The columns of a curve's sizes."""


def document(result: CheckResult) -> dict[str, Any]:
    """Return the verdict and its evidence for JSON."""
    curves = []
    for curve in result.curves:
        fields = curve.judgement.fields() | {"implementation": curve.implementation, "details": list(curve.details)}
        reasons = [{"why": why, "fix": fix} for why, fix in curve.reasons]
        sizes = [_row_fields(size.row) | size.judgement.fields() | record(SIZES, size) for size in curve.sizes]
        curves.append(fields | {"sight": curve.sight.fields(), "reasons": reasons, "sizes": sizes})
    return head_of(result.judgement, result.host) | {
        "sight": result.sight.fields(),
        "line": result.line,
        "no_verdict": result.no_verdict,
        "where": result.where,
        "remarks": list(result.remarks),
        "notes": list(result.notes),
        "rounds": result.rounds,
        "seconds": number(result.seconds),
        "disturbed": result.disturbed,
        "wrong_or_failed": [_row_fields(row) | {"problem": row.problem} for row in result.correctness.faults],
        "curves": curves,
    }


def _row_fields(row: CaseResult) -> dict[str, Any]:
    return case_fields(row.case) | {"implementation": row.implementation}


def suite(result: CheckResult, name: str = "") -> Element:
    """Return a JUnit test suite for the input *name*: a test for the verdict and one for each size."""
    tests = [replace(result.judgement, what="verdict")]
    tests += [Judgement(row.what, "", Word.WRONG, row.problem) for row in result.correctness.faults]
    for curve in result.curves:
        for size in curve.sizes:  # no size of an UNKNOWN curve passes
            word = Word.UNKNOWN if curve.word is Word.UNKNOWN else size.word
            tests.append(replace(size.judgement, word=word, reason=size.figure))
    what = ": ".join(filter(None, (name, result.where)))
    return junit_suite(f"collbench check: {what}", "collbench.check", tests)


_INSPECTOR = "AllReduce AllGather ReduceScatter Broadcast Reduce AlltoAll Gather Scatter SendRecv"
"""Collectives as NCCL's Inspector writes them."""


def metrics(result: CheckResult) -> str:
    """Return metrics in Prometheus' text format for node_exporter's text-file collector.

    Labels are those of NCCL's Inspector.  Names differ in their first word, since Inspector writes no HELP and TYPE:
    promtool requires both, and node_exporter drops a file whose metrics differ in them from another file's.
    """
    sizes: dict[str, CheckedSize] = {}
    for size in result.sizes:
        if size.row.busbw:
            # Sizes of one bucket, in place or not, share their labels: the slowest is written.
            labels = _labels(size, result)
            sizes[labels] = min(sizes.get(labels, size), size, key=lambda each: each.busbw(each.seconds))
    measured = {labels: size.busbw(size.seconds) / 1e9 for labels, size in sizes.items()}
    expected = {labels: size.busbw(size.expected) / 1e9 for labels, size in sizes.items() if size.expected > 0}
    node = braced({"node": result.host})
    lasted = {node: result.seconds} if math.isfinite(result.seconds) else {}
    wrong = {} if result.no_verdict else {node: len(result.correctness.faults)}
    limits = {labels: size.judgement.limit for labels, size in sizes.items() if size.judgement.limit > 0}
    sights = {}
    for kind, least in result.sight.fields().items():
        if least:
            sights[braced({"node": result.host, "sizes": kind})] = least
    families: Mapping[tuple[str, str], Mapping[str, float]] = {
        ("bus_bandwidth_gbs", "Bus bandwidth in GB/s."): measured,
        ("expected_bus_bandwidth_gbs", "Expected bus bandwidth in GB/s."): expected,
        ("slowdown_limit_ratio", "Limit of measured over expected time; a size above it is SLOW."): limits,
        ("check_sight_ratio", "Smallest slowdown that the last check would have noticed."): sights,
        ("check_status", f"Verdict of the last check: {STATUS_METRIC}."): {node: EXITS["nagios"][result.word]},
        ("check_wrong_sizes", "Sizes with a wrong result or without a result."): wrong,
        ("check_timestamp_seconds", "When the last check ended, or began if it has no verdict."): {node: time.time()},
        ("check_duration_seconds", "How long the last check took."): lasted,
    }
    return gauges(families)


def _labels(size: CheckedSize, result: CheckResult) -> str:
    case, collective = size.row.case, size.row.case.collective.name
    pairs = {
        "slurm_job_id": os.environ.get("SLURM_JOB_ID", "unknown"),
        "node": result.host,
        "n_nodes": str(result.nodes or "unknown"),
        "nranks": str(case.ranks),
        "collective": next((name for name in _INSPECTOR.split() if name.lower() == collective), collective),
        "message_size": message_size(case.nbytes),
        "implementation": size.row.implementation,
    }
    return braced(pairs)


def message_size(nbytes: int) -> str:
    """Return the bucket of a size as NCCL's Inspector names it.

    >>> message_size(2**30), message_size(8192), message_size(4)
    ('1-2GB', '8-9KB', '4-5B')
    """
    size, unit = float(nbytes), 0
    while size >= 1024 and unit < 4:
        size, unit = size / 1024, unit + 1
    return f"{math.floor(size)}-{math.floor(size) + 1}{('B', 'KB', 'MB', 'GB', 'TB')[unit]}"


def _documents(judged: Sequence[JudgedInput]) -> dict[str, Any]:
    every = [document(each.result) | {"input": each.name, "refused": each.refused} for each in judged]
    return every[0] if len(every) == 1 else {"inputs": every}


OUTPUTS: Mapping[str, Callable[[Sequence[JudgedInput]], str]] = {
    "json": lambda judged: json.dumps(_documents(judged), indent=2, allow_nan=False),
    "junit": lambda judged: junit([suite(each.result, each.name) for each in judged]),
    "metrics": lambda judged: metrics(judged[0].result),
}
"""Writers of files by the names of their options."""
