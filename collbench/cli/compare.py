"""Compare runs: which cases became faster or slower, with intervals, and a gate for continuous integration."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collbench.errors import UsageError

if TYPE_CHECKING:
    from collbench.analysis.compare import Comparison, Row, Unmatched
    from collbench.store import Run

LEGEND = (
    "ratio: time NEW/BASE, so above 1 is slower; interval: {confidence:.3g} % for all rows of a comparison together\n"
    "same: surely within {margin:.3g} %; slower, faster: surely not 1; inconclusive: may be either"
)
_ROW = "{size:>9}  {name:<16} {base:>8} {new:>8} {ratio:>7}  {interval:<16}  {verdict}"
_DIFFERENCES, _UNMATCHED = 12, 15  # shown in a table; JSON has all
COLUMNS = (
    "base new collective dtype redop root ranks in_place nbytes implementation "
    "base_seconds new_seconds ratio low high verdict remark"
).split()


class Share(click.ParamType):
    """`5%` or `0.05`."""

    name = "share"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        """A number between 0 and 1, neither included."""
        text = str(value).strip()
        try:
            found = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            found = 0.0
        if not 0 < found < 1:
            self.fail(f"{value!r} is no share; write it like 5% or 0.05", parameter, context)
        return found


@click.command("compare")
@click.argument("base", metavar="BASE", type=click.Path(path_type=Path))
@click.argument("new", metavar="NEW [MORE...]", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--margin", type=Share(), default="5%", show_default=True, help="Changes up to this do not matter.")
@click.option(
    "--confidence", type=Share(), default="95%", show_default=True, help="That no row of a comparison is called wrongly."
)
@click.option("--only", metavar="WORD[,WORD]", help="Collectives, implementations and sizes: allreduce,1M..")
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.option(
    "-o",
    "--out",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the ratios (.png, .svg, .pdf); may be given several times.",
)
@click.option("--gate", "gated", is_flag=True, help="Exit with 3 for a regression, 4 if one cannot be excluded.")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE.xml", help="Write a JUnit test case a row.")
@click.option("--summary", type=click.Path(path_type=Path), metavar="FILE.md", help="Append a summary in Markdown.")
def command(base: Path, new: tuple[Path, ...], **options: Any) -> int:
    """Compare each NEW run with BASE: the ratio of times of every case that both hold, with an interval and a verdict.

    BASE and NEW are run files or the folders that hold them.
    """
    from collbench import ratios, store

    ratios.check(options["out"])  # before anything is read
    return compare_with(store.read(base), [store.read(path) for path in new], options)


def compare_with(base: "Run", others: "Sequence[Run]", options: dict[str, Any]) -> int:
    """Compare, print and write what the options ask for; the exit status."""
    from collbench import gate, ratios
    from collbench.analysis.compare import compare

    selected = _selection(options["only"], [base, *others])
    found = [compare(base, each, options["margin"], options["confidence"], selected) for each in others]
    if not options["gated"]:
        _refuse(found)
    _PRINT[options["form"]](found)
    words = gate.in_words(found)
    if options["junit"]:
        gate.write_junit(options["junit"], found)
    if options["summary"]:
        gate.append_summary(options["summary"], found)
    for path in ratios.draw(found, options["out"]):
        click.echo(f"figure: {path}", err=options["form"] != "table")
    if not options["gated"]:
        return 0
    click.echo(words, err=options["form"] != "table")
    return gate.status(found)


def _selection(only: str | None, runs: "Sequence[Run]") -> Any:
    from collbench.analysis.selection import selection

    if only is None:
        return None
    names = dict.fromkeys(each.implementation for run in runs for each in run.results)
    chosen = selection(only, names)
    if not any(chosen(each.case, each.implementation) for run in runs for each in run.results):
        raise UsageError(f"--only {only} leaves nothing of these runs; they hold: {', '.join(_held(runs))}")
    return chosen


def _held(runs: "Sequence[Run]") -> list[str]:
    from collbench.units import format_size

    results = [each for run in runs for each in run.results]
    words = [each.case.collective.name for each in results] + [each.implementation for each in results]
    sizes = sorted(each.case.nbytes for each in results)
    return [*dict.fromkeys(words), *([f"{format_size(sizes[0])} to {format_size(sizes[-1])}"] if sizes else [])]


def _refuse(found: "Sequence[Comparison]") -> None:
    for each in found:
        if not each.rows and not any(row.regression for row in each.unmatched):
            words = f"nothing to compare: {each.base.path} and {each.new.path} have no case in common with a time in both"
            why = "; ".join(each.remarks) or "; ".join(
                f"{name} holds {', '.join(_held([run])) or 'no results'}"
                for name, run in (("BASE", each.base), ("NEW", each.new))
            )
            raise UsageError(f"{words}; {why}")


def _table(found: "Sequence[Comparison]") -> None:
    for each in found:
        for line in (*_head(each), *_rows(each), *_tail(each)):
            click.echo(line)
        click.echo()
    click.echo(LEGEND.format(confidence=100 * found[0].confidence, margin=100 * found[0].margin))


def _head(found: "Comparison") -> Iterator[str]:
    """The runs, and what differs but for the times."""
    from collbench.analysis.differences import printable

    for word, run in (("BASE", found.base), ("NEW", found.new)):
        started = printable(str(run.header.get("started", "")))
        cut = "" if run.complete else ", cut off"
        yield f"{word:<4}  {run.path}" + (f", {started}" if started else "") + cut
    for name, one, other in found.differences[:_DIFFERENCES]:
        yield f"differs: {name}: {one} -> {other}"
    if len(found.differences) > _DIFFERENCES:
        yield f"differs: {len(found.differences) - _DIFFERENCES} more (--format json has all)"
    yield from (f"note: {remark}" for remark in found.remarks)


def _rows(found: "Comparison") -> Iterator[str]:
    from collbench.table import title

    kinds: dict[str, list[Row]] = {}
    for row in found.rows:
        kinds.setdefault(title(row.base.case), []).append(row)
    for kind, rows in kinds.items():
        yield from ("", kind)
        head = {"size": "size", "name": "", "base": "base", "new": "new"}
        yield _ROW.format(**head, ratio="ratio", interval="interval", verdict="verdict")
        yield from map(_row, rows)


def _row(row: "Row") -> str:
    from collbench.analysis.differences import printable
    from collbench.gate import span
    from collbench.units import format_seconds, format_size

    return _ROW.format(
        size=format_size(row.base.case.nbytes),
        name=printable(row.base.implementation),
        base=format_seconds(row.before),
        new=format_seconds(row.after),
        ratio=f"{row.ratio:.3f}x",
        interval=span(row),
        verdict=row.verdict.value + (f": {row.remark}" if row.remark else ""),
    )


def _tail(found: "Comparison") -> Iterator[str]:
    from collbench import gate

    if found.unmatched:
        yield from ("", "not compared")
        regressed = sorted(found.unmatched, key=lambda each: not each.regression)
        for each in regressed[:_UNMATCHED]:
            yield f"  {gate.name(each)}: {gate.message(each)}" + (" (a regression)" if each.regression else "")
        if len(regressed) > _UNMATCHED:
            yield f"  {len(regressed) - _UNMATCHED} more (--format json has all)"
    yield from ("", f"rows: {gate.tally(found)}")


def _csv(found: "Sequence[Comparison]") -> None:
    import csv

    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for each in found:
        runs = {"base": str(each.base.path), "new": str(each.new.path)}
        writer.writerows(runs | _fields(row) for row in each.rows)
        writer.writerows(runs | _unmatched_fields(row) for row in each.unmatched)


def _json(found: "Sequence[Comparison]") -> None:
    import json

    from collbench import gate

    comparisons = [
        {
            "base": str(each.base.path),
            "new": str(each.new.path),
            "margin": each.margin,
            "confidence": each.confidence,
            "differences": [difference._asdict() for difference in each.differences],
            "remarks": list(each.remarks),
            "rows": [_fields(row) for row in each.rows],
            "not_compared": [_unmatched_fields(row) for row in each.unmatched],
            "regressions": len(each.regressions),
            "inconclusive": len(each.hidden),
        }
        for each in found
    ]
    click.echo(json.dumps({"comparisons": comparisons, "gate": gate.status(found)}, indent=2, allow_nan=False))


def _fields(row: "Row") -> dict[str, Any]:
    from collbench.records import case_fields

    low, high = (end if end == end else None for end in row.interval)
    return case_fields(row.base.case) | {
        "implementation": row.base.implementation,
        "base_seconds": row.before,
        "new_seconds": row.after,
        "ratio": row.ratio,
        "low": low,
        "high": high,
        "verdict": row.verdict.value,
        "remark": row.remark,
    }


def _unmatched_fields(row: "Unmatched") -> dict[str, Any]:
    from collbench.gate import message
    from collbench.records import case_fields

    said = {"implementation": row.implementation, "verdict": "not compared", "remark": message(row)}
    return case_fields(row.case) | said


_PRINT = {"table": _table, "csv": _csv, "json": _json}
