"""Say whether measured times are right: held against the model of the machine, with the likely reason if not.

For example:
  collbench diagnose results/runs/...
  collbench diagnose run.jsonl --on dgx-h100
"""

from collections.abc import Iterator
from pathlib import Path

import click

from collbench.analysis import roofline
from collbench.analysis.diagnose import Diagnosis, curve_remarks, settings
from collbench.api.reading import diagnose
from collbench.cli.options import NODES, RUN, machine_option
from collbench.topology.system import System
from collbench.units import format_rate, format_seconds, format_size


@click.command("diagnose", params=[RUN, machine_option(), NODES])
def command(run: Path, on: str | None, nodes: int | None) -> int:
    """Hold each curve of a run against what the model expects: as expected, slow, faster than modelled, or unknown.

    RUN is a run file or the folder that holds it.  Where a curve is slow, the likely reasons follow, best explained
    first: each is the machine with something changed, and said is how well its times fit.
    """
    diagnosed = diagnose(run, on, nodes=nodes)
    notes = [f"the run was {diagnosed.cut_off}"] if diagnosed.cut_off else []
    notes += diagnosed.facts.caveats
    notes += [f"{setting} was set" for setting in settings(diagnosed.facts)]
    for note in notes:
        click.echo(f"note: {note}")
    for curve, system in diagnosed.curves:
        for line in _lines(curve, system):
            click.echo(line)
    return 0


def _lines(diagnosis: Diagnosis, system: System | None) -> Iterator[str]:
    case = diagnosis.measured[0].case
    yield f"{case.title}, {diagnosis.implementation}" + (f", as {system.title}" if system else "")
    if diagnosis.expected:
        yield from _table(diagnosis)
    yield f"verdict: {diagnosis.verdict.value}" + (f": {diagnosis.remark}" if diagnosis.remark else "")
    if diagnosis.resolution:
        yield f"  {diagnosis.resolution}"
    if system and diagnosis.expected:
        largest, expected = diagnosis.measured[-1], diagnosis.expected[-1]
        for words in roofline.traffic_in_words(system, largest, expected):
            yield f"  {words}"
    if diagnosis.unexplained:
        yield f"  {diagnosis.unexplained}"
    for number, (why, fix) in enumerate(diagnosis.likely(), 1):
        yield f"  {number}. {why}"
        yield f"     {fix}"
    if not diagnosis.expected:
        for remark in curve_remarks(diagnosis.measured):
            yield f"  {remark}"
    yield ""


def _table(diagnosis: Diagnosis) -> Iterator[str]:
    yield f"{'size':>9} {'time':>9} {'expected':>9} {'band':>19} {'ratio':>7} {'busbw':>8}"
    for measured, expected in zip(diagnosis.measured, diagnosis.expected, strict=True):
        band = f"{format_seconds(expected.low)} - {format_seconds(expected.high)}"
        ratio = measured.typical / expected.seconds
        mark = ""
        if measured.typical > expected.high:
            mark = " slow"
        elif measured.typical < expected.low:
            mark = " fast"
        yield (
            f"{format_size(measured.case.nbytes):>9} {format_seconds(measured.typical):>9} "
            f"{format_seconds(expected.seconds):>9} {band:>19} {ratio:>6.2f}x {format_rate(measured.busbw):>8}{mark}"
        )
