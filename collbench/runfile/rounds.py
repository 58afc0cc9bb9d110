"""One result for each case and implementation of a run, where the file has several rows of it.

Rows that were made alike are rounds of one measurement, and become one row.  Rows that another tool made with other
settings, of another file or program, or with other protocols, are curves of their own: the implementation is named
after what differs, `nccl@iters 100`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import cast

from collbench.results import Explanation, Measurement, Observed, Prediction, Reported, Result, Timed, by_key
from collbench.runfile.header import ForeignTest
from collbench.units import format_size, printable

_PRINTED = ("algo", "proto")  # columns in which rccl-tests says how the library did it


def one_of_each(results: Iterable[Result], tests: Sequence[ForeignTest] = (), copies: int = 0) -> tuple[Result, ...]:
    """Return one result for each case and implementation, given the tests of an imported run; of copies the slowest."""
    results = tuple(results)
    if len({(result.case, result.implementation) for result in results}) == len(results):
        return results
    single: list[Result] = []
    for rows in by_key(_named_apart(results, tests), lambda row: (row.case, row.implementation)).values():
        single += _of_case(rows, copies)
    return tuple(single)


def _of_case(rows: Sequence[Result], copies: int) -> Sequence[Result]:
    """Return the one row that stands for these; all of them where rows are no rounds."""
    if rows[0].case.work or isinstance(rows[0], Explanation | Prediction):
        return rows

    # A row that is wrong or failed stands for its case whatever the others say; else rounds with a time are joined.
    bad = [row for row in rows if row.outcome.bad]
    timed = [row for row in rows if isinstance(row, Observed) and row.right]
    if timed:
        return bad[:1] or [cast(Result, max(timed, key=lambda row: row.typical) if copies else joined(timed))]
    return bad[:1] or rows[-1:]


def joined(rows: Sequence[Observed]) -> Observed:
    """Return the rounds of a case, which are right, as one row, without disturbed ones if there are others."""
    calm = [row for row in rows if not row.disturbed] or rows
    measured = [row for row in calm if isinstance(row, Measurement)]
    reported = [row for row in calm if isinstance(row, Reported)]
    if len(measured) > 1:
        return measured[-1].joined(measured)
    if len(reported) > 1:
        seconds = tuple(row.seconds for row in reported)
        samples = tuple(sample for row in reported for sample in row.samples)
        return replace(reported[-1], seconds=median(seconds), samples=samples, rounds=seconds)
    return calm[-1]


def _named_apart(results: Sequence[Result], tests: Sequence[ForeignTest]) -> list[Result]:
    """Return the results, those of another tool with a name of their own where tests differ that hold the same case."""
    names: dict[int, str] = {}  # by the identity of a row
    for (_, implementation), rows in by_key(results, lambda row: row.curve).items():
        by_test = by_key((row for row in rows if isinstance(row, Reported)), _test_of)
        settings = {test: _settings(tests, test, alike) for test, alike in by_test.items()}

        # What is the same in all tests tells nothing apart.
        telling = []
        for name in next(iter(settings.values()), ()):
            if len({facts[name] for facts in settings.values()}) > 1:
                telling.append(name)

        # Tests of different cases are one curve, however they were made.
        if not telling or not _overlap(by_test.values()):
            continue
        for test, facts in settings.items():
            differing = " + ".join(filter(None, (facts[name] for name in telling))) or "as usual"
            names |= dict.fromkeys(map(id, by_test[test]), printable(f"{implementation}@{differing}"))
    return [replace(row, implementation=names.get(id(row), row.implementation)) for row in results]


def _overlap(tests: Iterable[Sequence[Reported]]) -> bool:
    """Return whether several tests have the same case."""
    seen: set[object] = set()
    for rows in tests:
        cases = {row.case for row in rows}
        if not seen.isdisjoint(cases):
            return True
        seen |= cases
    return False


def _test_of(row: Reported) -> int:
    test = row.printed.get("test")
    return test if type(test) is int else 0


def _settings(tests: Sequence[ForeignTest], number: int, rows: Sequence[Reported]) -> Mapping[str, str]:
    """Return in words how a test was made: its file, its program by the prefix of its lines, settings, protocols."""
    test = tests[number] if 0 <= number < len(tests) else ForeignTest()
    facts = {"file": test.file, "prefix": str(test.layout.get("prefix", ""))}
    for name in sorted(set().union(*(other.sweep for other in tests))):
        facts[name] = f"{name} {test.sweep[name]}" if name in test.sweep else ""
    protocols = set()
    for row in rows:
        protocols |= {str(row.printed[name]) for name in _PRINTED if row.printed.get(name)}
    return facts | {"protocols": "/".join(sorted(protocols))}


def scatter_in_words(rows: Iterable[Result | Timed]) -> str:
    """Return `2 rounds, up to 4.0x apart (1 GiB)`; empty where no size was repeated."""
    repeated = [row for row in rows if isinstance(row, Reported) and row.rounds]
    if not repeated:
        return ""
    worst = max(repeated, key=lambda row: max(row.rounds) / min(row.rounds))
    most = max(len(row.rounds) for row in repeated)
    return f"{most} rounds, up to {max(worst.rounds) / min(worst.rounds):.2f}x apart ({format_size(worst.case.nbytes)})"
