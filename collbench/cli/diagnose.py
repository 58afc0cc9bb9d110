"""Say whether measured times are right: held against the model of the machine, with the likely reason if not.

For example:
  collbench diagnose results/runs/...
  collbench diagnose run.jsonl --as dgx-h100
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collbench.cli._paths import RUN

if TYPE_CHECKING:
    from collbench.analysis.diagnose import Diagnosis
    from collbench.topology.system import System


@click.command("diagnose")
@RUN
@click.option("--as", "name", metavar="SYSTEM|FILE.toml", help="What the machine is.  [default: as the run file says]")
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Nodes that ranks are spread over.  [default: as few as they fill]",
)
def command(run: Path, name: str | None, nodes: int | None) -> int:
    """Hold each curve of a run against what the model expects: as expected, slow, faster than modelled, or unknown.

    RUN is a run file or the folder that holds it.  Where a curve is slow, the likely reasons follow, best explained
    first: each is the machine with something changed, and said is how well its times fit.
    """
    from collbench.analysis.diagnose import settings
    from collbench.api.diagnosing import diagnose

    diagnosed = diagnose(run, name, nodes=nodes)
    cut = (f"the run was {diagnosed.cut_off}",) if diagnosed.cut_off else ()
    for remark in (*cut, *diagnosed.facts.caveats, *(f"{setting} was set" for setting in settings(diagnosed.facts))):
        click.echo(f"note: {remark}")
    for curve, system in diagnosed.curves:
        for line in _lines(curve, system):
            click.echo(line)
    return 0


def _lines(diagnosis: "Diagnosis", system: "System | None") -> Iterator[str]:
    from collbench.analysis import roofline
    from collbench.analysis.diagnose import curve_remarks

    case = diagnosis.measured[0].case
    yield f"{case.title}, {diagnosis.implementation}" + (f", as {system.title}" if system else "")
    if diagnosis.expected:
        yield from _table(diagnosis)
    yield f"verdict: {diagnosis.verdict.value}" + (f": {diagnosis.remark}" if diagnosis.remark else "")
    if diagnosis.resolution:
        yield f"  {diagnosis.resolution}"
    if system and diagnosis.expected:
        largest, expected = diagnosis.measured[-1], diagnosis.expected[-1]
        yield from (f"  {words}" for words in roofline.traffic_in_words(system, largest, expected))
    yield from _reasons(diagnosis)
    yield from (f"  {remark}" for remark in ([] if diagnosis.expected else curve_remarks(diagnosis.measured)))
    yield ""


def _table(diagnosis: "Diagnosis") -> Iterator[str]:
    from collbench.units import format_rate, format_seconds, format_size

    yield f"{'size':>9} {'time':>9} {'expected':>9} {'band':>19} {'ratio':>7} {'busbw':>8}"
    for measured, expected in zip(diagnosis.measured, diagnosis.expected, strict=True):
        band = f"{format_seconds(expected.low)} - {format_seconds(expected.high)}"
        ratio = measured.typical / expected.seconds
        mark = " slow" if measured.typical > expected.high else " fast" if measured.typical < expected.low else ""
        yield (
            f"{format_size(measured.case.nbytes):>9} {format_seconds(measured.typical):>9} "
            f"{format_seconds(expected.seconds):>9} {band:>19} {ratio:>6.2f}x {format_rate(measured.busbw):>8}{mark}"
        )


def _reasons(diagnosis: "Diagnosis") -> Iterator[str]:
    if diagnosis.unexplained:
        yield f"  {diagnosis.unexplained}"
    for number, (why, fix) in enumerate(diagnosis.likely(), 1):
        yield f"  {number}. {why}"
        yield f"     {fix}"
