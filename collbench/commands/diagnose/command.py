"""Say whether measured times are right: held against the model of the machine, with the likely reason if not.

For example:
  collbench diagnose results/runs/...
  collbench diagnose run.jsonl --on dgx-h100
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click

from collbench.analysis import roofline
from collbench.analysis.curve_fit import curve_remarks
from collbench.analysis.diagnose import Diagnosis
from collbench.analysis.judgement import EXITS, Correctness, Judgement, Sight, Word, not_judged
from collbench.analysis.reasons import settings
from collbench.cli.options import RUN, json_option, option, options_of, print_answer
from collbench.cli.verdicts import head_of, line_of
from collbench.commands.diagnose.library import Diagnosed, DiagnoseRequest, diagnose
from collbench.present.columns import Column
from collbench.present.terminal import Table
from collbench.results import Observed, Prediction
from collbench.runfile.schema import case_fields
from collbench.topology.system import System
from collbench.units import counted, format_range, format_rate, format_seconds, format_size

_OPTIONS = [
    RUN,
    *options_of(DiagnoseRequest),
    json_option("all of it"),
    option("--gate gated", "Exit with 3 if WRONG or SLOW, 4 if UNKNOWN.", is_flag=True),
]


@click.command("diagnose", params=_OPTIONS)
def command(run: Path, on: str | None, nodes: int | None, as_json: Path | None, gated: bool) -> int:
    """Hold each curve of a run against what the model expects: WRONG, SLOW, UNKNOWN, FAST or OK.

    RUN is a run file or the folder that holds it.  Rows that are wrong or failed come first: with one, no curve is as
    expected.  Where a curve is slow, the likely reasons follow, best explained first.  Each reason is a changed
    machine; the line says how well its times fit.
    """
    diagnosed = diagnose(run, on, nodes=nodes)
    print_answer(lambda: _show(diagnosed), as_json, _document(diagnosed))
    return EXITS["plain"][diagnosed.word] if gated else 0


def _show(diagnosed: Diagnosed) -> None:
    click.echo(line_of("plain", diagnosed.word, _answer(diagnosed)))
    click.echo(f"results: {diagnosed.correctness.in_words()}")
    for note in filter(None, (diagnosed.cut_off, *_notes(diagnosed))):
        click.echo(f"note: {note}")
    for curve, system in diagnosed.curves:
        click.echo("\n".join(["", *_lines(curve, system)]))


def _answer(diagnosed: Diagnosed) -> str:
    """Return in words why it is this word: what is wrong, or by how much the curve that is farthest off is so."""
    word, correctness = diagnosed.word, diagnosed.correctness
    if word is Word.WRONG:
        missing = len(correctness.faults) + correctness.untried
        return f"results are wrong or missing in {missing} of {counted(correctness.total, 'row')}"
    alike = [curve for curve in diagnosed.diagnoses if curve.word is word]
    telling = max(alike, key=lambda curve: curve.off)
    parts = [f"{telling.name}: {telling.remark}"]
    if word is Word.OK:
        ratios = format_range(*_span(alike), "{:.2f}x".format)
        parts = [f"{ratios} the expected times", str(Sight.of_all(curve.sight for curve in alike))]
    elif word is Word.SLOW:
        parts += telling.choices
        if telling.reasons:
            parts.append(f"likely: {', or '.join(telling.likeliest)}")
    if word is not Word.UNKNOWN:
        parts += not_judged((curve.name, curve.word) for curve in diagnosed.diagnoses)
    return "; ".join(parts)


def _span(curves: Iterable[Diagnosis]) -> tuple[float, float]:
    """Return the least and the most of measured over expected times."""
    ratios = [size.ratio.value for curve in curves for size in curve.sizes]
    return min(ratios), max(ratios)


def _notes(diagnosed: Diagnosed) -> tuple[str, ...]:
    return (*diagnosed.facts.caveats, *(f"{setting} was set" for setting in settings(diagnosed.facts)))


def _lines(diagnosis: Diagnosis, system: System | None) -> Iterator[str]:
    case = diagnosis.measured[0].case
    yield f"{case.title}, {diagnosis.implementation}" + (f", as {system.title}" if system else "")
    if diagnosis.expected:
        yield TABLE.heading()
        yield from map(TABLE.row, zip(diagnosis.measured, diagnosis.expected, diagnosis.sizes, strict=True))
    # Without a system the speed of all curves is unknown, which is said once, of the run.
    if system or diagnosis.word is Word.WRONG:
        yield (diagnosis if system else replace(diagnosis, remark="")).headline
    # What NCCL chose, what the verdict could not have seen, and what went over the links.
    for words in filter(None, (*diagnosis.choices, diagnosis.resolution)):
        yield f"  {words}"
    if system and diagnosis.expected and diagnosis.judged:
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


DiagnosedSize = tuple[Observed, Prediction, Judgement]
"""A row: what was measured, what the model expects, and the judgement."""
TABLE: Table[DiagnosedSize] = Table(
    (
        Column("size", lambda row: row[0].case.nbytes, format_size, form=">9"),
        Column("time", lambda row: row[0].typical, format_seconds, form=">9"),
        Column("expected", lambda row: row[1].seconds, format_seconds, form=">9"),
        Column("band", lambda row: format_range(row[1].low, row[1].high, format_seconds), importance=2, form=">19"),
        Column("ratio", lambda row: row[0].typical / row[1].seconds, "{:.2f}x".format, form=">7"),
        Column("busbw", lambda row: row[0].busbw, format_rate, 1, ">8"),
        Column("", lambda row: row[2].says),
    )
)


def _document(diagnosed: Diagnosed) -> dict[str, Any]:
    """Return all that is shown, in seconds and bytes."""
    machines = dict.fromkeys(system.title for _, system in diagnosed.curves if system)
    against = f"the model of {', '.join(machines)}" if machines else ""
    names = dict.fromkeys(curve.measured[0].case.collective.name for curve in diagnosed.diagnoses)
    judgement = Judgement(", ".join(names), against, diagnosed.word, _answer(diagnosed))
    return head_of(judgement, diagnosed.host) | {
        "sight": Sight.of_all(curve.sight for curve in diagnosed.diagnoses).fields(),
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
    rows = []
    for measured, expected, size in zip_longest(diagnosis.measured, diagnosis.expected, diagnosis.sizes):
        seconds = {"seconds": measured.typical, "expected_seconds": expected.seconds if expected else None}
        rows.append({"nbytes": measured.case.nbytes} | seconds | size.fields())
    reasons = []
    for reason in diagnosis.reasons:
        why = {"name": reason.hypothesis.name, "fix": reason.hypothesis.fix}
        reasons.append(why | {"off": reason.off, "facts": list(reason.facts)})
    return {
        "implementation": diagnosis.implementation,
        "system": system.title if system else None,
        **kind,
        "word": diagnosis.word.value,
        "speed": diagnosis.speed.value,
        "remark": diagnosis.remark,
        "results": _correctness(diagnosis.correctness),
        "choices": diagnosis.choices,
        "sight": diagnosis.sight.fields(),
        "reasons": reasons,
        "rows": rows,
    }
