"""What a comparison means for continuous integration: an exit status and a JUnit file."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

from collbench.analysis.compare import Comparison, Row, Together, Verdict
from collbench.analysis.matching import DISTURBED, Unmatched, no_common_size
from collbench.errors import writing
from collbench.results import Measurement
from collbench.units import counted, format_seconds, format_size, printable, significant

PASSED, REGRESSION, INCONCLUSIVE = 0, 3, 4
_MOST_ALLOWED = 0.5  # of a margin that is advised
Line = Row | Together | Unmatched  # of a table


def status(comparisons: Sequence[Comparison]) -> int:
    """Return the exit status: REGRESSION before INCONCLUSIVE; also INCONCLUSIVE where nothing can be compared."""
    if any(comparison.regressions for comparison in comparisons):
        return REGRESSION
    unsure = any(comparison.hidden or not comparison.rows for comparison in comparisons)
    return INCONCLUSIVE if unsure else PASSED


def in_words(comparisons: Sequence[Comparison]) -> str:
    """Return the status as a sentence."""
    slower = f"slower by more than {100 * min(comparison.margin for comparison in comparisons):.3g}%"
    kinds = Counter(type(row) for comparison in comparisons for row in comparison.regressions)
    if kinds:
        what = {
            Row: ("row", slower),
            Together: ("curve", f"{slower} on average"),
            Unmatched: ("row", "no longer right"),
        }
        counts = [f"{counted(kinds[kind], noun)} {how}" for kind, (noun, how) in what.items() if kinds[kind]]
        return f"gate: regression: {', '.join(counts)}"
    for comparison in comparisons:
        if not comparison.rows:
            return f"gate: inconclusive: {_nothing(comparison)}"
    hidden = list(chain.from_iterable(comparison.hidden for comparison in comparisons))
    if hidden:
        return f"gate: inconclusive: {counted(len(hidden), 'row')} may be {slower}; {_advice(hidden)}"
    return f"gate: passed: no row is {slower}"


def _nothing(comparison: Comparison) -> str:
    """Return what to say of runs without a row in common."""
    base, new = comparison.base, comparison.new
    sizes = no_common_size(base, new)
    return f"nothing of {new.path} can be compared with {base.path}" + (f"; {sizes}" if sizes else "")


def _advice(hidden: Sequence[Row | Unmatched]) -> str:
    """Return what makes such rows conclusive; a log cannot be measured longer."""
    rows = [row for row in hidden if isinstance(row, Row)]
    if any(row.moved for row in rows):
        return "measure again while the machine is as in BASE, or both in turn (sweep --ab)"
    lost = {row.new for row in hidden if isinstance(row, Unmatched)}
    if lost:
        calm = "measure again while no other program runs"
        fix = calm if DISTURBED in lost else "measure these too, or give the whole log"
        return f"some are {' or '.join(sorted(lost))} in NEW: {fix}"
    margin = max(row.limit for row in rows) - 1
    allow = f", or allow more (--margin {math.ceil(100 * margin)}%)" if margin < _MOST_ALLOWED else ""
    if any(isinstance(row.new, Measurement) and row.new.spread for row in rows):
        return f"start the ranks more often (sweep --starts 9){allow}"
    if all(row.pair.sampled for row in rows):
        return f"measure longer (sweep --budget){allow}"
    unknown = any(row.verdict is Verdict.UNKNOWN for row in rows)
    return f"measure again{', or state how much each time varies (--assume 2%)' * unknown}{allow}"


def span(row: Row | Together) -> str:
    """Return the interval of a ratio as text; empty where there is none."""
    if math.isnan(row.interval[0]):
        return ""
    return " .. ".join(map(_end, row.interval))


def _end(ratio: float) -> str:
    if ratio < 100:
        return f"{ratio:.3f}"
    return f"{ratio:.0f}" if ratio < 1e5 else ">99999"


def ratio(row: Row | Together) -> str:
    """Return a ratio with three decimals, or of a wide interval with two digits, and three between 0.5 and 2."""
    low, high = row.interval
    if not high - low > 0.2 * row.ratio:
        return f"{row.ratio:.3f}x"
    return f"{significant(row.ratio, 3 if 0.5 < row.ratio < 2 else 2)}x"


def name(line: Line) -> str:
    """Return the case, sizes and implementation of a line."""
    return f"{line.case.title}, {sizes(line)}, {printable(line.implementation)}"


def sizes(line: Line) -> str:
    """Return the size of a line, or how many there are."""
    if not isinstance(line, Together):
        return format_size(line.case.nbytes)
    return f"{line.sizes} of {line.every}" if line.every > line.sizes else f"all {line.sizes}"


def message(line: Line) -> str:
    """Return times, ratio and verdict of a line, or why it has none."""
    if isinstance(line, Unmatched):
        return printable(f"{line.base} in BASE, {line.new} in NEW" + (f": {line.reason}" if line.reason else ""))
    if isinstance(line, Together):
        return f"{ratio(line)} on average, {span(line)}, {line.verdict.value}"
    times = f"{format_seconds(line.before)} -> {format_seconds(line.after)}, {ratio(line)}"
    words = ", ".join(filter(None, [times, span(line), line.verdict.value]))
    return words + (f"; {line.remark}" if line.remark else "")


def write_junit(path: Path, comparisons: Sequence[Comparison]) -> None:
    """Write a suite for each comparison and a test case for each row; UsageError if it cannot be written.

    A regression fails, and what tells nothing, or could hide a regression, is skipped: CI systems show that apart.
    """
    root = ElementTree.Element("testsuites", name="collbench compare")
    for comparison in comparisons:
        # What is in several of these lists has the worst state, which comes last.
        curves = [whole for whole in comparison.together if whole.verdict is Verdict.INCONCLUSIVE]
        states = dict.fromkeys(map(id, [*comparison.hidden, *comparison.unmatched, *curves]), "other")
        states |= dict.fromkeys(map(id, comparison.regressions), "failed")
        lines: list[Line] = [*comparison.rows, *comparison.together, *comparison.unmatched]
        tests = [(name(line), states.get(id(line), "passed"), message(line)) for line in lines]
        if not comparison.rows:
            tests.append(("rows of both runs", "other", _nothing(comparison)))
        root.append(junit_suite(f"{comparison.new.path} against {comparison.base.path}", "collbench.compare", tests))
    ElementTree.indent(root)
    with writing(path, "--junit"):
        path.parent.mkdir(parents=True, exist_ok=True)
        ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def junit_suite(label: str, program: str, tests: Sequence[tuple[str, str, str]]) -> ElementTree.Element:
    """Return a suite of tests, each given as its name, `passed`, `failed` or another state, and what to say of it."""
    states = [state for _, state, _ in tests]
    failed, passed = states.count("failed"), states.count("passed")
    counts = {"tests": len(tests), "failures": failed, "errors": 0, "skipped": len(tests) - failed - passed}
    numbers = {key: str(value) for key, value in counts.items()}
    suite = ElementTree.Element("testsuite", {"name": printable(label), **numbers})
    for name_, state, words in tests:
        case = ElementTree.SubElement(suite, "testcase", name=name_, classname=program)
        if state == "passed":
            ElementTree.SubElement(case, "system-out").text = words
        else:
            ElementTree.SubElement(case, "failure" if state == "failed" else "skipped", message=words)
    return suite
