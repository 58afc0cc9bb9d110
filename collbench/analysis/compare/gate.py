"""What a comparison means for continuous integration: an exit status, a JUnit file, a summary in Markdown."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from collbench.analysis.compare.compare import Comparison
from collbench.analysis.compare.unmatched import Unmatched
from collbench.analysis.compare.verdicts import Row, Together
from collbench.errors import UsageError
from collbench.units import format_seconds, format_size, printable

PASSED, REGRESSION, INCONCLUSIVE = 0, 3, 4
_SHOWN = 20  # rows of a kind in a summary
Judged = Row | Together | Unmatched


def status(found: Sequence[Comparison]) -> int:
    """REGRESSION before INCONCLUSIVE, which is also what nothing at all to compare is."""
    if any(each.regressions for each in found):
        return REGRESSION
    return INCONCLUSIVE if any(each.hidden or not each.rows for each in found) else PASSED


def in_words(found: Sequence[Comparison]) -> str:
    """The status as a sentence."""
    regressions, hidden = sum(len(each.regressions) for each in found), sum(len(each.hidden) for each in found)
    least = min(each.margin for each in found)
    if regressions:
        return f"gate: {_rows(regressions)} slower by more than {least:.0%}, or right no longer: regression"
    if empty := [each for each in found if not each.rows]:
        return f"gate: nothing of {empty[0].new.path} can be compared with {empty[0].base.path}: inconclusive"
    if hidden:
        return f"gate: {_rows(hidden)} may be slower by more than {least:.0%}: inconclusive; measure longer (--budget)"
    return f"gate: no row is slower by more than {least:.0%}: passed"


def _rows(count: int) -> str:
    return f"{count} row{'s' if count > 1 else ''}"


def span(row: Row | Together) -> str:
    """The interval of a ratio as text; empty where there is none."""
    low, high = (_bound(each) for each in row.interval)
    return f"{low} .. {high}" if low else ""


def _bound(ratio: float) -> str:
    if math.isnan(ratio):
        return ""
    return f"{ratio:.3f}" if ratio < 100 else f"{ratio:.0f}" if ratio < 1e5 else ">99999"


def name(each: Judged) -> str:
    """The row in words."""
    case, implementation = (
        (each.base.case, each.base.implementation) if isinstance(each, Row) else (each.case, each.implementation)
    )
    return f"{case.title}, {sizes(each)}, {printable(implementation)}"


def sizes(each: Judged) -> str:
    """One size, or how many there are."""
    if isinstance(each, Together):
        return f"all {each.sizes}"
    return format_size(each.base.case.nbytes if isinstance(each, Row) else each.case.nbytes)


def message(each: Judged) -> str:
    """What is found of it."""
    if isinstance(each, Unmatched):
        return printable(f"{each.base} in BASE, {each.new} in NEW" + (f": {each.reason}" if each.reason else ""))
    if isinstance(each, Together):
        return f"{each.ratio:.3f}x on average, {span(each)}, {each.verdict.value}"
    times = f"{format_seconds(each.before)} -> {format_seconds(each.after)}, {each.ratio:.3f}x"
    return ", ".join(filter(None, [times, span(each), each.verdict.value])) + (
        f"; {each.remark}" if each.remark else ""
    )


def write_junit(path: Path, found: Sequence[Comparison]) -> None:
    """Write a suite a comparison, a test case a row; UsageError if that can't be.

    A regression fails, what could hide one is skipped: CI systems show that apart from what passed, not as broken.
    """
    root = ElementTree.Element("testsuites", name="collbench compare")
    for each in found:
        root.append(_suite(each))
    ElementTree.indent(root)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another --junit") from None


def _suite(found: Comparison) -> ElementTree.Element:
    failed, unsure = ({id(each) for each in part} for part in (found.regressions, found.hidden))
    rows: list[Judged] = [*found.rows, *found.together, *found.unmatched]
    label = printable(f"{found.new.path} against {found.base.path}")
    counts = {"tests": len(rows), "failures": len(failed), "errors": 0, "skipped": len(unsure)}
    suite = ElementTree.Element("testsuite", {"name": label} | {key: str(value) for key, value in counts.items()})
    for row in rows:
        case = ElementTree.SubElement(suite, "testcase", name=name(row), classname="collbench.compare")
        if id(row) in failed or id(row) in unsure:
            ElementTree.SubElement(case, "failure" if id(row) in failed else "skipped", message=message(row))
        else:
            ElementTree.SubElement(case, "system-out").text = message(row)
    return suite


def append_summary(path: Path, found: Sequence[Comparison]) -> None:
    """Append Markdown, as GitHub's step summaries are written; UsageError if it can't be."""
    text = "".join(f"{line}\n" for line in summary(found))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another --summary") from None


def summary(found: Sequence[Comparison]) -> Iterator[str]:
    """Lines: the verdict first, then what it rests on."""
    yield "## collbench compare"
    yield ""
    yield f"**{in_words(found)}**"
    for each in found:
        yield ""
        yield f"{_escaped(str(each.new.path))} against {_escaped(str(each.base.path))}: {tally(each)}"
        for heading, rows in (("Regressions", each.regressions), ("Could hide a regression", each.hidden)):
            yield from _listed(heading, rows)


def tally(found: Comparison) -> str:
    """How many rows of each verdict."""
    counts = Counter(row.verdict.value for row in found.rows)
    return ", ".join(f"{count} {word}" for word, count in counts.most_common()) or "no rows"


def _listed(heading: str, rows: Sequence[Judged]) -> Iterator[str]:
    if not rows:
        return
    yield from ("", f"### {heading}", "", "| row | found |", "|---|---|")
    yield from (f"| {_escaped(name(row))} | {_escaped(message(row))} |" for row in rows[:_SHOWN])
    if len(rows) > _SHOWN:
        yield f"| and {len(rows) - _SHOWN} more | |"


def _escaped(text: str) -> str:
    """Names and reasons may hold anything; none of it is to be markup."""
    for sign in "\\|`*_<>[]":
        text = text.replace(sign, f"&#{ord(sign)};")
    return printable(text)
