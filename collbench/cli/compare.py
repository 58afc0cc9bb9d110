"""Compare runs: which cases became faster or slower, with intervals, and a gate for continuous integration.

For example:
  collbench compare results/runs/before results/runs/after
  collbench compare --against last results/runs/after --gate
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collbench.cli._json import STANDARD, JsonCommand, into, json_option
from collbench.cli._paths import PATH, Where
from collbench.errors import UsageError

if TYPE_CHECKING:
    from collbench.analysis.compare import Comparison
    from collbench.analysis.interconnects import Table
    from collbench.runfile.store import Run


def _share(context: click.Context, parameter: click.Parameter, text: str) -> float:
    """`5%` or `0.05`: a number between 0 and 1, neither included."""
    try:
        share = float(text.strip()[:-1]) / 100 if text.strip().endswith("%") else float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise click.BadParameter(f"{text!r} is no share; write it like 5% or 0.05", context, parameter)
    return share


@click.command("compare", cls=JsonCommand)
@click.argument("runs", metavar="[BASE] NEW [MORE...]", nargs=-1, required=True, type=PATH)
@click.option(
    "--against",
    type=click.Choice(["last"]),
    help="Take the last earlier run of the same kind in --history as BASE, for each NEW.",
)
@click.option("--history", type=PATH, metavar="FOLDER", help="Where --against looks.  [default: results/runs]")
@click.option(
    "--margin",
    callback=_share,
    metavar="SHARE",
    default="5%",
    show_default=True,
    help="Changes up to this do not matter.",
)
@click.option(
    "--confidence",
    callback=_share,
    metavar="SHARE",
    default="95%",
    show_default=True,
    help="That no row of a comparison is called wrongly.",
)
@click.option("--only", metavar="WORD[,WORD]", help="Collectives, implementations and sizes: allreduce,1M..")
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@json_option("all of it")
@click.option(
    "-o",
    "--out",
    cls=Where,
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="Draw the ratios (.png, .svg, .pdf); may be given several times.",
)
@click.option("--gate", "gated", is_flag=True, help="Exit with 3 for a regression, 4 if one cannot be excluded.")
@click.option("--junit", type=PATH, metavar="FILE.xml", help="Write a JUnit test case a row.")
@click.option("--summary", type=PATH, metavar="FILE.md", help="Append a summary in Markdown.")
def command(runs: tuple[Path, ...], against: str | None, history: Path | None, **options: Any) -> int:
    """Compare each NEW run with BASE: the ratio of times of every case that both hold, with an interval and a verdict.

    BASE and NEW are run files or the folders that hold them.  With --against last all runs given are NEW.

    Runs of different machines, predicted ones too, are also held against each other as interconnects: who is fastest at
    which sizes.
    """
    from collbench.plots import ratios
    from collbench.runfile import store

    if options["as_json"] == STANDARD:
        options["form"] = "json"
    ratios.check(options["out"])  # before anything is read
    if history and not against:
        raise UsageError("--history is where --against last looks; give --against last too")
    if not against and len(runs) < 2:
        raise UsageError("one run alone cannot be compared; give BASE and NEW, or --against last")
    read = [store.read(path) for path in runs]
    if against:
        return _compare([(_last(new, history), new) for new in read], options)
    return _compare([(read[0], new) for new in read[1:]], options)


def _last(new: "Run", history: Path | None) -> "Run":
    from collbench.runfile import DEFAULT, store
    from collbench.runfile.listing import last_before

    return store.read(last_before(new, history or DEFAULT))


def _compare(pairs: "Sequence[tuple[Run, Run]]", options: dict[str, Any]) -> int:
    """Compare each new run with its base, print and write what the options ask for; the exit status."""
    from collbench.analysis import gate
    from collbench.analysis.compare import compare
    from collbench.api.comparing import chosen
    from collbench.cli._compare_table import FORMATS
    from collbench.plots import ratios

    selected = chosen(options["only"], [run for pair in pairs for run in pair])
    comparisons = [compare(base, new, options["margin"], options["confidence"], selected) for base, new in pairs]
    interconnects = _interconnects([run for pair in pairs for run in pair], selected)
    if not options["gated"] and not interconnects:
        _refuse(comparisons)
    FORMATS[options["form"]](comparisons, interconnects)
    if options["as_json"] not in (None, STANDARD):
        with into(options["as_json"]):
            FORMATS["json"](comparisons, interconnects)
    if options["junit"]:
        gate.write_junit(options["junit"], comparisons)
    if options["summary"]:
        gate.append_summary(options["summary"], comparisons)
    for path in ratios.draw(comparisons, options["out"]):
        click.echo(f"figure: {path}", err=options["form"] != "table")
    if not options["gated"]:
        return 0
    click.echo(gate.in_words(comparisons), err=options["form"] != "table")
    return gate.status(comparisons)


def _interconnects(runs: "Sequence[Run]", selected: Any) -> "list[Table]":
    """Runs of different machines side by side; none of one machine, where a comparison is of what ran on it."""
    from collbench.analysis.interconnects import of_runs, tables
    from collbench.analysis.matching import several_machines

    return tables(of_runs(runs, selected)) if several_machines(run.header for run in runs) else []


def _refuse(comparisons: "Sequence[Comparison]") -> None:
    from collbench.api.comparing import held

    for comparison in comparisons:
        if not comparison.rows and not any(row.regression for row in comparison.unmatched):
            base, new = comparison.base, comparison.new
            why = [
                f"{name} holds {', '.join(held([run])) or 'no results'}" for name, run in (("BASE", base), ("NEW", new))
            ]
            raise UsageError(
                f"nothing to compare: {base.path} and {new.path} have no case in common with a time in both; "
                f"{'; '.join(comparison.remarks or why)}"
            )
