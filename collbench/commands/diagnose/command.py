"""Say whether measured times are right: held against the model of the machine, with the likely reason if not.

For example:
  collbench diagnose results/runs/...
  collbench diagnose run.jsonl --on dgx-h100
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import click

from collbench.analysis import gate, roofline
from collbench.analysis.curve_fit import curve_remarks
from collbench.analysis.diagnose import Diagnosis, settings
from collbench.analysis.verdict import FAR, Correctness, Exceptional, Health, but_for, listed
from collbench.cli.options import RUN, STANDARD, json_option, option, options_of, print_answer
from collbench.commands.diagnose.library import Diagnosed, DiagnoseRequest, diagnose
from collbench.present.columns import Column
from collbench.present.terminal import Table
from collbench.results import Observed, Prediction
from collbench.runfile.schema import case_fields
from collbench.topology.system import System
from collbench.units import counted, format_range, format_rate, format_seconds, format_size

_GATE = {gate.PASSED: "passed", gate.REGRESSION: "failed", gate.INCONCLUSIVE: "inconclusive"}
_OPTIONS = [
    RUN,
    *options_of(DiagnoseRequest),
    json_option("all of it"),
    option("--gate gated", "Exit with 3 if slow or wrong, 4 if unknown or with exceptions.", is_flag=True),
]


@click.command("diagnose", params=_OPTIONS)
def command(run: Path, on: str | None, nodes: int | None, as_json: Path | None, gated: bool) -> int:
    """Hold each curve of a run against what the model expects: as expected, slow, faster than modelled, or unknown.

    RUN is a run file or the folder that holds it.  Rows that are wrong or failed come first: with one, no curve is as
    expected.  Where a curve is slow, the likely reasons follow, best explained first.  Each reason is a changed
    machine; the line says how well its times fit.
    """
    diagnosed = diagnose(run, on, nodes=nodes)
    print_answer(lambda: _show(diagnosed), as_json, _document(diagnosed))
    if not gated:
        return 0
    click.echo(f"gate: {diagnosed.verdict.value}: {_GATE[diagnosed.status]}", err=as_json == STANDARD)
    return diagnosed.status


def _show(diagnosed: Diagnosed) -> None:
    click.echo(_answer(diagnosed))
    click.echo(f"results: {diagnosed.correctness.in_words()}")
    for note in filter(None, (diagnosed.cut_off, *_notes(diagnosed))):
        click.echo(f"note: {note}")
    for curve, system in diagnosed.curves:
        click.echo("\n".join(["", *_lines(curve, system)]))


def _answer(diagnosed: Diagnosed) -> str:
    """Return one line: whether the run is as fast as expected, by how much it is off, and the likely reason."""
    curves = diagnosed.diagnoses
    far = sorted(chain.from_iterable(curve.exceptions for curve in curves), key=lambda size: -size.ratio)
    sizes = sum(len(curve.measured) for curve in curves)
    parts = _verdict(diagnosed, far, sizes)
    if far and diagnosed.verdict is not Health.AS_EXPECTED:
        parts.append(f"far above their bands are {listed(far, sizes)}")
    if any(system is None for _, system in diagnosed.curves):
        parts.append(diagnosed.facts.no_system)
    return f"answer: {'; '.join(filter(None, parts))}"


def _verdict(diagnosed: Diagnosed, far: Sequence[Exceptional], sizes: int) -> list[str]:
    """Return the verdict on the run and what supports it; `far` are the exceptions among all `sizes`."""
    # What is wrong comes before what is slow, and what is slow before what is not known.
    verdict, correctness = diagnosed.verdict, diagnosed.correctness
    if verdict is Health.WRONG:
        missing = len(correctness.faults) + correctness.untried
        return [f"results are wrong or missing in {missing} of {counted(correctness.total, 'row')}"]
    as_expected = verdict is Health.AS_EXPECTED
    parts = [f"{verdict.value}{but_for(far, sizes)}" if as_expected else verdict.value]
    counts = Counter(curve.verdict.value for curve in diagnosed.diagnoses)
    if len(counts) > 1:
        parts.append(f"curves: {', '.join(f'{count} {name}' for name, count in counts.most_common())}")
    alike = [curve for curve in diagnosed.diagnoses if curve.verdict is verdict]
    if as_expected:
        parts.append(f"{'the others ' if far else ''}{_span(alike)} the expected times")
    elif verdict in (Health.SLOW, Health.FASTER):
        # The curve that is farthest off speaks for the others.
        farthest = max(alike, key=lambda curve: curve.off)
        parts.append(f"{farthest.measured[0].case.title}, {farthest.implementation}: {farthest.remark}")
        parts += farthest.choices
        if farthest.reasons:
            parts.append(f"likely: {', or '.join(farthest.likeliest)}")
    elif all(system for _, system in diagnosed.curves):
        parts.append(alike[0].remark)
    return parts


def _span(curves: Iterable[Diagnosis]) -> str:
    """Return the range of measured over expected times, without exceptions: `0.98x .. 1.10x`."""
    ratios = []
    for curve in curves:
        for row, expected in zip(curve.measured, curve.expected, strict=True):
            if row.typical <= FAR * expected.high:
                ratios.append(row.typical / expected.seconds)
    return format_range(min(ratios), max(ratios), "{:.2f}x".format)


def _notes(diagnosed: Diagnosed) -> tuple[str, ...]:
    return (*diagnosed.facts.caveats, *(f"{setting} was set" for setting in settings(diagnosed.facts)))


def _lines(diagnosis: Diagnosis, system: System | None) -> Iterator[str]:
    case = diagnosis.measured[0].case
    yield f"{case.title}, {diagnosis.implementation}" + (f", as {system.title}" if system else "")
    if diagnosis.expected:
        yield TABLE.heading()
        yield from map(TABLE.row, zip(diagnosis.measured, diagnosis.expected, strict=True))
    # Without a system the speed of all curves is unknown, which is said once, of the run.
    if system or diagnosis.verdict is Health.WRONG:
        yield f"verdict: {(diagnosis if system else replace(diagnosis, remark='')).headline}"
    # What NCCL chose, what the verdict could not have seen, and what went over the links.
    for words in filter(None, (*diagnosis.choices, diagnosis.resolution)):
        yield f"  {words}"
    if system and diagnosis.expected and diagnosis.speed is not Health.UNKNOWN:
        largest, expected = diagnosis.measured[-1], diagnosis.expected[-1]
        for words in roofline.traffic_in_words(system, largest, expected):
            yield f"  {words}"
    if diagnosis.unexplained:
        yield f"  {diagnosis.unexplained}"
    for number, (why, fix) in enumerate(diagnosis.likely(), 1):
        yield from (f"  {number}. {'Likely' if number == 1 else 'Or'}: {why}", f"     {fix}")
    if not diagnosis.expected:
        for remark in curve_remarks(diagnosis.measured):
            yield f"  {remark}"


Pair = tuple[Observed, Prediction]
"""A row: what was measured, and what the model expects."""


def _mark(pair: Pair) -> str:
    measured, expected = pair
    if measured.typical > expected.high:
        return "far above" if measured.typical > FAR * expected.high else "above"
    return "below" if measured.typical < expected.low else ""


TABLE: Table[Pair] = Table(
    (
        Column("size", lambda pair: pair[0].case.nbytes, format_size, form=">9"),
        Column("time", lambda pair: pair[0].typical, format_seconds, form=">9"),
        Column("expected", lambda pair: pair[1].seconds, format_seconds, form=">9"),
        Column("band", lambda pair: format_range(pair[1].low, pair[1].high, format_seconds), importance=2, form=">19"),
        Column("ratio", lambda pair: pair[0].typical / pair[1].seconds, "{:.2f}x".format, form=">7"),
        Column("busbw", lambda pair: pair[0].busbw, format_rate, 1, ">8"),
        Column("", _mark),
    )
)


def _document(diagnosed: Diagnosed) -> dict[str, Any]:
    """Return all that is shown, in seconds and bytes."""
    return {
        "answer": _answer(diagnosed).removeprefix("answer: "),
        "verdict": diagnosed.verdict.value,
        "gate": diagnosed.status,
        "results": _correctness(diagnosed.correctness),
        "cut_off": diagnosed.cut_off,
        "notes": list(_notes(diagnosed)),
        "curves": [_curve(diagnosis, system) for diagnosis, system in diagnosed.curves],
    }


def _correctness(rows: Correctness) -> dict[str, Any]:
    faults = []
    for fault in rows.faults:
        faults.append({"implementation": fault.implementation, **case_fields(fault.case), "problem": fault.problem})
    counts = {"rows": rows.total, "right": rows.right, "not_checked": rows.unchecked, "disturbed": rows.disturbed}
    return counts | {"faults": faults}


def _curve(diagnosis: Diagnosis, system: System | None) -> dict[str, Any]:
    kind = case_fields(diagnosis.measured[0].case)
    del kind["nbytes"]
    rows = [{"nbytes": row.case.nbytes, "seconds": row.typical} for row in diagnosis.measured]
    for row, expected in zip(rows, diagnosis.expected, strict=False):
        row |= {"expected_seconds": expected.seconds, "low": expected.low, "high": expected.high}
    reasons = []
    for reason in diagnosis.reasons:
        why = {"name": reason.hypothesis.name, "fix": reason.hypothesis.fix}
        reasons.append(why | {"off": reason.off, "facts": list(reason.facts)})
    return {
        "implementation": diagnosis.implementation,
        "system": system.title if system else None,
        **kind,
        "verdict": diagnosis.verdict.value,
        "speed": diagnosis.speed.value,
        "remark": diagnosis.remark,
        "results": _correctness(diagnosis.correctness),
        "choices": diagnosis.choices,
        "exceptions": [exceptional._asdict() for exceptional in diagnosis.exceptions],
        "reasons": reasons,
        "rows": rows,
    }
