"""The parts of the page, each from what was found in the runs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from collbench.analysis.crossover import contests, in_words, rivals, winners
from collbench.analysis.fit import runs
from collbench.implementations import libraries
from collbench.measurement import PARTS, Explanation
from collbench.report.markup import Markup, Seen, by_run, distinct, joined, section, table, tag
from collbench.report.rows import HEADING, Rows
from collbench.report.sanitize import plain
from collbench.report.verdicts import Judged
from collbench.units import format_seconds, format_size

MOST_CONTESTS = 60  # in words, of a run
MOST_SPENT = 60  # explanations of a run
MOST_KINDS = 40  # of cases of a run whose winners are listed


def heading(found: Sequence[Seen]) -> str:
    """The title of the page."""
    collectives = distinct(each.case.collective.name for seen in found for each in seen.run.every)
    return f"{_listed(collectives) or 'collectives'}: {_listed(distinct(seen.run.machine for seen in found), '; ')}"


def header(found: Sequence[Seen]) -> Markup:
    """What was run where."""
    kinds = distinct(_kind(seen) for seen in found)
    lines = [tag("p", f"collbench report · {', '.join(kinds)}", class_="eyebrow"), tag("h1", heading(found))]
    for seen in found:
        lines.append(tag("p", _about(seen), class_="subtitle"))
    return joined(lines)


def _kind(seen: Seen) -> str:
    kinds = distinct(type(each).__name__.lower() for each in seen.run.every)
    words = {"prediction": "predicted", "reported": "reported by another tool", "measurement": "measured"}
    said = [word for kind, word in words.items() if kind in kinds]
    return said[0] if said else "explained" if "explanation" in kinds else "no numbers"


def _about(seen: Seen) -> Markup:
    started = seen.run.run.header.started
    facts = [f"{len(seen.run.every):,} rows", *([f"started {plain(started, 40)}"] if started else [])]
    facts += [] if seen.run.run.complete else ["not finished: the run was stopped, or its file was cut"]
    return joined([tag("strong", seen.run.label), f": {seen.run.machine}; {', '.join(facts)}"])


def lesson(paragraphs: Iterable[str]) -> Markup:
    """The two paragraphs."""
    return section("lesson", "In plain words", *(tag("p", paragraph) for paragraph in paragraphs), class_="lesson")


def curves(drawn: dict[str, Any]) -> Markup:
    """Whether there is anything to draw, and what was left out."""
    if not drawn["figures"]:
        return tag("p", "No row has a time that is known to be right: there is nothing to draw.", id="nothing")
    left = drawn["left_out"]
    return tag("p", f"{left} more curves are not drawn, to keep this file small.", class_="note") if left else Markup()


def crossovers(found: Sequence[Seen]) -> Markup:
    """Who wins where, and each hand-written implementation against the library."""
    return section("crossovers", "Crossovers", *by_run(found, _crossed))


def _crossed(seen: Seen) -> Iterator[str]:
    results = rivals(seen.run.run.results)
    found = winners(results)
    for case, ranges in found[:MOST_KINDS]:
        rows = [(_range(first, last), name) for first, last, name in ranges]
        yield table(f"Fastest: {case.title}", ("size", "implementation"), rows, class_="narrow")
    words = [in_words(contest) for contest in contests(results, libraries())]
    if words:
        yield tag("ul", *(tag("li", word) for word in words[:MOST_CONTESTS]))
    left = max(0, len(words) - MOST_CONTESTS) + max(0, len(found) - MOST_KINDS)
    if left:
        yield tag("p", f"{left} more are not listed.", class_="note")


def _range(first: int, last: int) -> str:
    return format_size(first) if first == last else f"{format_size(first)} - {format_size(last)}"


def spent(found: Sequence[Seen]) -> Markup:
    """Where the time of explained operations goes; nothing if none was explained."""
    parts = list(by_run(found, _spent))
    return section("spent", "Where the time goes", *parts) if parts else Markup()


def _spent(seen: Seen) -> Iterator[str]:
    explained = [result for result in seen.run.run.results if isinstance(result, Explanation)]
    looked_into = [each for each in explained if each.tracks][:MOST_SPENT]
    for case in distinct(each.case for each in looked_into):
        rows = [
            (
                each.implementation,
                format_seconds(each.seconds),
                _bar(each),
                *(f"{each.share(part):.0%}" for part in PARTS),
            )
            for each in looked_into
            if each.case == case
        ]
        heading = ("implementation", "time", "shares", *PARTS)
        yield table(f"{case.title}, {format_size(case.nbytes)}", heading, rows)
    if looked_into:
        legend = [tag("li", tag("span", "", class_=f"part {part}"), part) for part in PARTS]
        yield tag("ul", *legend, class_="parts")


def _bar(result: Explanation) -> Markup:
    shares = [
        tag(
            "span",
            "",
            class_=f"part {part}",
            style=f"width:{result.share(part):.1%}",
            title=f"{part} {result.share(part):.0%}",
        )
        for part in PARTS
    ]
    return tag("span", *shares, class_="bar", aria_hidden="true")


def fits(found: Sequence[Seen]) -> Markup:
    """Latency and bandwidth of each curve that has a fit."""
    parts = list(by_run(found, _fits))
    if not parts:
        return Markup()
    legend = (
        "T = a + g·√S + b·S: latency is a, rate (GB/s) is what bandwidth tends to, half at is the size with half of it."
    )
    return section("fits", "Latency and bandwidth", *parts, tag("p", legend, class_="note"))


def _fits(seen: Seen) -> Iterator[str]:
    for case in distinct(curve.case for curve in seen.fits if curve.fit):
        rows = [runs.columns(curve) for curve in seen.fits if curve.fit and curve.case == case]
        yield table(f"Fitted: {case.title}", ("implementation", *runs.HEADING[1:]), rows)
    for curve in seen.fits:
        if not curve.fit:
            yield tag("p", f"{curve.case.title}, {curve.implementation}: no fit, {curve.reason}.", class_="note")


def verdicts(found: Sequence[Seen]) -> Markup:
    """What `collbench diagnose` says of each curve."""
    return section("verdicts", "Are the numbers right?", *by_run(found, _verdicts))


def _verdicts(seen: Seen) -> Iterator[str]:
    if seen.judgement.notes:
        yield tag("ul", *(tag("li", f"note: {note}") for note in seen.judgement.notes))
    if seen.judgement.silence:
        yield tag("p", f"unknown: {seen.judgement.silence}.")
        return
    if seen.system is None:
        yield tag("p", f"unknown: {seen.why_not}. What the curves say of themselves:")
    for what in distinct(curve.what for curve in seen.judgement.curves):
        rows = [_verdict(curve, seen.why_not) for curve in seen.judgement.curves if curve.what == what]
        against = f", against {seen.system.title}" if seen.system else ""
        yield table(f"{what}{against}", ("implementation", "verdict", "because"), rows, class_="wide")


def _verdict(each: Judged, known: str) -> tuple[str, ...]:
    mark = tag("span", each.verdict.value, class_=f"verdict {each.verdict.name.lower()}")
    reasons = [reason for reason in each.because if reason != known]
    return each.implementation, mark, tag("ul", *(tag("li", reason) for reason in reasons)) if reasons else ""


def table_of(found: Rows, several: bool) -> Markup:
    """The raw table below its search box."""
    left = found.total - len(found.lines)
    search = [
        tag("label", "Search the rows", for_="search"),
        tag("input", type="search", id="search", placeholder="nccl 64 KiB", autocomplete="off", spellcheck="false"),
        tag("output", f"{len(found.lines):,} rows", id="count", for_="search"),
    ]
    head = tag("tr", *(tag("th", words, scope="col") for words in HEADING))
    caption = tag("caption", "Every row of the runs")
    whole = tag(
        "table", caption, tag("thead", head), tag("tbody", *found.lines), id="rows", class_="" if several else "single"
    )
    box = tag("div", whole, class_="scroll tall", tabindex="0", role="region", aria_label="Every row of the runs")
    note = f"{left:,} more rows are left out, to keep this file small; the run files have them." if left else ""
    legend = "algbw, busbw: GB/s, 1e9 bytes/s; interval: 95 % of the median, or nine in ten of a prediction."
    words = [tag("p", each, class_="note") for each in (note, legend) if each]
    return section("table", "All rows", tag("div", *search, class_="controls no-print"), box, *words)


def footer(version: str) -> Markup:
    """What made it."""
    return tag("p", f"Made by collbench {version}. Everything is in this file; it fetches nothing.")


def _listed(names: Sequence[str], between: str = ", ") -> str:
    """A few of them, and how many more there are."""
    shown = list(names[:3])
    return between.join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
