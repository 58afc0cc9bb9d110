"""`collbench compare`: ratios of times with intervals, and a gate for continuous integration.

For example:
  collbench compare results/runs/before results/runs/after
  collbench compare --against last results/runs/after --gate
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import click

from collbench.analysis.compare import compare as compare_runs
from collbench.analysis.comparison import UNSURE, Comparison, Row, Together, overall
from collbench.analysis.crossover import format_span
from collbench.analysis.fit import measured
from collbench.analysis.headers import several_machines
from collbench.analysis.interconnects import InterconnectTable, of_runs, tables
from collbench.analysis.judgement import EXITS, Judgement, Word
from collbench.analysis.matching import Selection, Unmatched, no_common_size, selection
from collbench.cli import sweeping
from collbench.cli.options import PATH, STANDARD, csv_option, json_option, option, options_of, print_answer
from collbench.cli.verdicts import GATE, head_of, junit, junit_option, junit_suite, line_of, write_verdict
from collbench.errors import UsageError
from collbench.present.columns import Column
from collbench.present.terminal import Table, left_out_in_words
from collbench.properties import PROPERTIES
from collbench.requests.declared import SHARE, Opt, Request, takes
from collbench.requests.words import RunOrPath, Share, as_run
from collbench.results import by_key
from collbench.runfile import store
from collbench.runfile.listing import last_before
from collbench.runfile.schema import case_fields
from collbench.runfile.store import Run
from collbench.stats import number
from collbench.units import format_list, format_range, format_seconds, format_size, parse_share, printable, significant


@dataclass(frozen=True)
class CompareRequest(Request):
    """Two runs, and how to compare them."""

    base: Annotated[RunOrPath, Opt("", "The run to compare with.")]
    new: Annotated[RunOrPath, Opt("", "The run to judge.")]
    _: KW_ONLY
    margin: Annotated[
        Share | None,
        Opt("--margin", "Ignore changes up to this share.", "5%, more for logs that scatter", unit=SHARE),
    ] = None
    confidence: Annotated[
        Share, Opt("--confidence", "Probability that the words of all rows are right.", unit=SHARE)
    ] = "95%"
    only: Annotated[
        str | None, Opt("--only", "Rows to compare, as in allreduce,ring-flags,1M..", metavar="WORD[,WORD]")
    ] = None


@takes(CompareRequest)
def compare(request: CompareRequest) -> Comparison:
    """Compare two runs case by case.

    Returns:
        The comparison.  `rows` has a row for each case with a time in both runs: the ratio of times NEW/BASE with an
        interval, and a `word` (SLOW, FAST, OK or UNKNOWN).  `unmatched` lists rows that only one run has, and
        `judgement` judges the whole.

    Raises:
        RunFileError: A file is not a run file.
        UsageError: `only` selects no row.

    >>> import collbench
    >>> folder = "results/cpu-ab-slowed-ring/"
    >>> comparison = collbench.compare(folder + "as-is", folder + "COLLBENCH_KERNELS=my-kernels")
    >>> [(row.implementation, row.word.value) for row in comparison.rows if row.case.nbytes == 2**15]
    [('mpi', 'OK'), ('ring-flags', 'SLOW')]

    """
    margin = None if request.margin is None else parse_share(request.margin, "--margin")
    shares = margin, parse_share(request.confidence, "--confidence")
    runs = as_run(request.base), as_run(request.new)
    return compare_runs(*runs, *shares, selected(request.only, runs))


def selected(only: str | None, runs: Sequence[Run]) -> Selection | None:
    """Return the selection of `--only`, None for all rows; UsageError if it selects no row of the runs."""
    if only is None:
        return None
    results = list(chain.from_iterable(run.cases for run in runs))
    chosen = selection(only, dict.fromkeys(result.implementation for result in results))
    if not any(chosen(result.case, result.implementation) for result in results):
        raise UsageError(f"--only {only} selects no row of these runs; they hold: {', '.join(contents(runs))}")
    return chosen


def contents(runs: Sequence[Run]) -> list[str]:
    """Return the contents of runs in words: collectives, implementations, properties, numbers of ranks, sizes."""
    results = list(chain.from_iterable(run.cases for run in runs))
    if not results:
        return []
    names = [result.case.collective.name for result in results] + [result.implementation for result in results]
    names += [each.word(value) for result in results for each, value in result.case.unusual]
    sizes = [result.case.nbytes for result in results]
    ranks = format_list(sorted({result.case.ranks for result in results}))
    return [*dict.fromkeys(names), f"{ranks} ranks", format_span(min(sizes), max(sizes))]


LEGEND = (
    "ratio: time of NEW over BASE, above 1 is slower; with {confidence:.3g} % confidence all intervals hold at once\n"
    "OK: the row's own interval lies within {margin} of 1; SLOW: the interval lies above 1, and the ratio exceeds "
    "--margin (default 5 %); FAST: the same below 1; UNKNOWN: neither, or no interval"
)
_TOGETHER = "all: geometric mean of the ratios of all sizes, without outliers and uncertain ratios"


def _sizes(row: Row | Together) -> str:
    """Return the size of a row, or the number of sizes of a curve."""
    if isinstance(row, Row):
        return format_size(row.case.nbytes)
    return f"{row.sizes} of {row.every}" if row.every > row.sizes else f"all {row.sizes}"


def span(row: Row | Together) -> str:
    """Return the interval of a ratio as text; empty if there is none."""
    return format_range(*row.interval, "{:.3f}".format)


def ratio_in_words(row: Row | Together) -> str:
    """Return a ratio with three decimals; with a wide interval, two digits, or three between 0.5 and 2."""
    low, high = row.interval
    if not high - low > 0.2 * row.ratio:
        return f"{row.ratio:.3f}x"
    return f"{significant(row.ratio, 3 if 0.5 < row.ratio < 2 else 2)}x"


def _word(row: Row | Together) -> str:
    if row.word is not Word.UNKNOWN:
        return str(row.word.value)
    return f"UNKNOWN: {row.judgement.reason.removeprefix(UNSURE) if row.estimate.known else 'no interval'}"


TABLE: Table[Row | Together] = Table(
    (
        Column("size", _sizes, form=">9"),
        Column("", lambda row: printable(row.implementation), form="<16"),
        Column("base", lambda row: getattr(row, "before", None), format_seconds, 1, ">8"),
        Column("new", lambda row: getattr(row, "after", None), format_seconds, 2, ">8"),
        Column("ratio", ratio_in_words, form=">7"),
        Column("interval", span, importance=3, form="<17"),
        Column("", _word),
    )
)
EMPTY = "(empty)"
_TELLING = 10.0  # largest deviation from 1 that the summary of inconclusive rows prints
_DIFFERENCES, _UNMATCHED = 12, 15  # lines in the text; JSON has all
COLUMNS = (
    *("base", "new", "collective", "dtype", "redop", "root", "ranks", *PROPERTIES, "nbytes", "implementation", "step"),
    *("base_seconds", "new_seconds", "ratio", "low", "high", "limit", "within", "word", "reason"),
    *("base_method", "new_method"),
)

_OPTIONS = [
    click.Argument(["runs"], metavar="[BASE] NEW [MORE...]", nargs=-1, required=True, type=PATH),
    option(
        "--against",
        "Use the latest earlier run of the same kind in FOLDER as BASE; last: results/runs.",
        metavar="last|FOLDER",
    ),
    *options_of(CompareRequest),
    json_option("all of it"),
    csv_option("row"),
    GATE,
    junit_option("a row"),
]


@click.command("compare", params=_OPTIONS)
def command(runs: tuple[Path, ...], against: str | None, **options: Any) -> int:
    """Compare each NEW run with BASE: the ratio of times of each common case, with an interval and a word.

    BASE and NEW are run files or folders with a run file.  With --against, all runs are NEW.

    Runs of different machines, also predicted ones, are compared as interconnects too: the fastest at each size.
    """
    aside = STANDARD in (options["as_json"], options["as_csv"])  # a program reads standard output
    if not against and len(runs) < 2:
        raise UsageError("compare needs two runs; give BASE and NEW, or --against last")
    read = [store.read(path) for path in runs]
    if against:
        history = [] if against == "last" else [Path(against)]
        pairs = [(store.read(last_before(new, *history)), new) for new in read]
    else:
        pairs = [(read[0], new) for new in read[1:]]
    every = list(chain.from_iterable(pairs))
    selection = selected(options["only"], every)
    comparisons = [compare_runs(base, new, options["margin"], options["confidence"], selection) for base, new in pairs]

    # Runs of one machine are compared row by row; different machines also by the fastest at each size.
    several = several_machines(run.header for run in every)
    machines = tables(of_runs(every, selection)) if several else []
    if not options["gated"] and not machines:
        _refuse(comparisons)
    records = chain.from_iterable(map(_records, comparisons))
    written = options["as_json"], _document(comparisons, machines), options["as_csv"], COLUMNS, records
    print_answer(lambda: _table(comparisons, machines), *written)
    if options["junit"]:
        suites = []
        for comparison in comparisons:
            label = f"{comparison.new.path} against {comparison.base.path}"
            suites.append(junit_suite(label, "collbench.compare", junit_tests(comparison)))
        write_verdict("junit", options["junit"], junit(suites))
    if not options["gated"]:
        return 0
    judgement = overall(comparisons)
    click.echo(line_of("plain", judgement.word, f"compare: {judgement.reason}"), err=aside)
    return EXITS["plain"][judgement.word]


def _refuse(comparisons: Sequence[Comparison]) -> None:
    """Raise UsageError if two runs have no case in common."""
    for comparison in comparisons:
        if comparison.rows or comparison.bits or any(row.regression for row in comparison.unmatched):
            continue
        base, new = comparison.base, comparison.new
        if not comparison.remarks and not measured([base, new]):
            raise UsageError(f"nothing to compare: {store.why_none([base, new])}")
        holds = [f"{name} holds {', '.join(contents([run])) or 'no results'}" for name, run in _named(comparison)]
        why = f"no case in common with a time in both; {'; '.join(comparison.remarks or holds)}"
        sizes = no_common_size(base, new)
        if sizes:
            why = f"{sizes}; measure one with the sizes of the other (-b, -e, -f, -m)"
        raise UsageError(f"nothing to compare: {base.path} and {new.path} have {why}")


def _named(comparison: Comparison) -> Sequence[tuple[str, store.Run]]:
    return ("BASE", comparison.base), ("NEW", comparison.new)


def _table(comparisons: Sequence[Comparison], machines: Sequence[InterconnectTable]) -> None:
    if machines:
        sweeping.show_interconnects(machines)
    else:
        click.echo("answer: {0.word.value}: {0.reason}\n".format(overall(comparisons)))
    for comparison in comparisons:
        click.echo("\n".join([*_head(comparison), *rows(comparison), *_tail(comparison), ""]))
    if any(not row.moved for comparison in comparisons for row in comparison.rows):
        click.echo("\n".join(legend(comparisons)))


def legend(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield the legend of the tables: the meaning of columns and words."""
    if any(comparison.together for comparison in comparisons):
        yield _TOGETHER
    yield from filter(None, [left_out_in_words(TABLE)])
    margins = dict.fromkeys(f"{100 * comparison.margin:.3g} %" for comparison in comparisons)
    yield LEGEND.format(confidence=100 * comparisons[0].confidence, margin=" or ".join(margins))


def _head(comparison: Comparison) -> Iterator[str]:
    """Yield the two runs, and their differences other than times."""
    for name, run in _named(comparison):
        yield ", ".join(filter(None, [f"{name:<4}  {run.path}", printable(run.header.started), run.cut_off]))
    for name, base, new in comparison.differences[:_DIFFERENCES]:
        yield f"differs: {name}: {base or EMPTY} -> {new or EMPTY}"
    if len(comparison.differences) > _DIFFERENCES:
        yield f"differs: {len(comparison.differences) - _DIFFERENCES} more (--json has all)"
    yield from (f"note: {remark}" for remark in (*comparison.remarks, *comparison.bits))


def rows(comparison: Comparison) -> Iterator[str]:
    """Yield a table for each kind of case: times, ratio and word.  Rows on other cores than before are left out."""
    judged: list[Row | Together] = [row for row in comparison.rows if not row.moved]
    judged += comparison.together
    for title, alike in by_key(judged, lambda row: row.case.title).items():
        yield from ("", title, TABLE.heading())
        yield from map(TABLE.row, alike)


def _tail(comparison: Comparison) -> Iterator[str]:
    if comparison.unmatched:
        yield from ("", "not compared")
        regressions_first = sorted(comparison.unmatched, key=lambda row: not row.regression)
        for row in regressions_first[:_UNMATCHED]:
            yield f"  {row.judgement.what}: {row.judgement.says}"
        if len(regressions_first) > _UNMATCHED:
            yield f"  {len(regressions_first) - _UNMATCHED} more (--json has all)"
    yield from ("", f"rows: {comparison.counts}")
    unsure = sorted(row.within for row in comparison.rows if row.word is Word.UNKNOWN and row.estimate.known)
    if unsure and unsure[-1] < _TELLING:
        half, every = significant(100 * median(unsure), 2), significant(100 * unsure[-1], 2)
        within = f"by each row's own interval, half are within {half} % of 1, all within {every} %"
        yield f"inconclusive rows: {within}"


def message(line: Row | Together | Unmatched) -> str:
    """Return times, ratio and interval of a line, or why it has no ratio."""
    if isinstance(line, Unmatched):
        return line.judgement.reason
    parts = [f"{ratio_in_words(line)} on average"]
    if isinstance(line, Row):
        parts = [f"{format_seconds(line.before)} -> {format_seconds(line.after)}, {ratio_in_words(line)}"]
    return ", ".join(filter(None, [*parts, span(line), line.judgement.reason]))


def junit_tests(comparison: Comparison) -> list[Judgement]:
    """Return the JUnit tests of a comparison; lines without a ratio are UNKNOWN, that is skipped."""
    judged = [replace(line.judgement, reason=message(line)) for line in comparison.lines]
    nothing = Judgement("rows of both runs", "", Word.UNKNOWN, comparison.nothing)
    return judged if comparison.rows else [*judged, nothing]


def _document(comparisons: Sequence[Comparison], machines: Sequence[InterconnectTable]) -> dict[str, Any]:
    hosts = dict.fromkeys(comparison.new.header.environment.host for comparison in comparisons)
    return head_of(overall(comparisons), ", ".join(filter(None, hosts))) | {
        "comparisons": list(map(_comparison_fields, comparisons)),
        "interconnects": sweeping.interconnects_as_json(machines),
    }


def _comparison_fields(comparison: Comparison) -> dict[str, Any]:
    fields = _paths(comparison) | comparison.judgement.fields()
    return fields | {
        "margin": comparison.margin,
        "confidence": comparison.confidence,
        "differences": [difference._asdict() for difference in comparison.differences],
        "remarks": list(comparison.remarks),
        "bits": list(comparison.bits),
        "rows": list(map(_fields, comparison.rows)),
        "all_sizes": list(map(_fields, comparison.together)),
        "not_compared": list(map(_fields, comparison.unmatched)),
        "regressions": len(comparison.regressions),
        "inconclusive": len(comparison.hidden),
    }


def _paths(comparison: Comparison) -> dict[str, Any]:
    return {"base": str(comparison.base.path), "new": str(comparison.new.path)}


def _fields(line: Row | Together | Unmatched) -> dict[str, Any]:
    """Return the fields of a row, of all sizes of an implementation, or of an unmatched row."""
    named = line.case.properties | {"implementation": line.implementation}
    fields = case_fields(line.case) | named | line.judgement.fields()
    if isinstance(line, Together):
        del fields["nbytes"]
        fields["sizes"] = line.sizes
    if isinstance(line, Row):
        fields |= {"base_seconds": line.before, "new_seconds": line.after, "within": number(line.within)}
        fields |= {"base_method": line.base.method, "new_method": line.new.method}
    return fields


def _records(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Yield the fields of each row for CSV; the column `step` holds a step or a training job as JSON."""
    for fields in [_fields(line) for line in comparison.lines if not isinstance(line, Together)]:
        step = fields.pop("step", None) or fields.pop("job", None)
        record = _paths(comparison) | fields | {"step": json.dumps(step) if step else ""}
        yield {name: value for name, value in record.items() if name in COLUMNS}
