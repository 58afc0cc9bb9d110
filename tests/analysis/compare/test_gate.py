"""The gate's words, figures and files from rows that are given, and `--only`, which chooses the rows."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from collbench.analysis import gate
from collbench.analysis.compare import Comparison, Row, Together, Verdict
from collbench.analysis.matching import Selection, Unmatched, selection
from collbench.commands.compare.command import rows
from collbench.errors import UsageError
from collbench.runfile.header import Header
from collbench.runfile.store import Run
from collbench.stats import Estimate
from collbench.units import printable
from tests.conftest import case, measurement


def row(ratio: float, verdict: Verdict, implementation: str = "mpi", remark: str = "") -> Row:
    one = measurement(implementation)
    return Row(one, one, 1e-6, ratio * 1e-6, Estimate(ratio, ratio - 0.01, ratio + 0.01), verdict, remark)


SLOWER, SAME, UNSURE = row(1.2, Verdict.SLOWER), row(1.0, Verdict.SAME), row(1.049, Verdict.INCONCLUSIVE)
WHOLE = Together(case(nbytes=0), "mpi", 4, Estimate(1.2, 1.1, 1.3), Verdict.SLOWER)
WRONG, SKIPPED = (Unmatched(case(), "mpi", "right", word, "why") for word in ("wrong", "skipped"))


def of(*rows: Row, together: Sequence[Together] = (), unmatched: Sequence[Unmatched] = ()) -> Comparison:
    base, new = (Run(Path(name), Header(), (), True) for name in ("base_.jsonl", "new_.jsonl"))
    return Comparison(base, new, rows, tuple(together), tuple(unmatched), (), 0.05, 0.95, ())


def test_the_status_is_that_of_all_comparisons_and_intervals_have_as_many_digits_as_they_need() -> None:
    for found, status, words in (
        ([of(SAME)], 0, "passed: no row is slower by more than 5%"),
        ([of(SAME), of(SLOWER)], 3, "regression: 1 row slower by more than 5%"),
        ([of(SLOWER, UNSURE, together=[WHOLE]), of(SLOWER)], 3, "regression: 2 rows slower by more than 5%, 1 curve"),
        ([of(SAME, unmatched=[WRONG])], 3, "regression: 1 row no longer right"),
        ([of(SLOWER, unmatched=[WRONG])], 3, "regression: 1 row slower by more than 5%, 1 row no longer right"),
        ([of(SAME), of(UNSURE, unmatched=[SKIPPED]), of(UNSURE)], 4, "inconclusive: 3 rows may be slower by more than"),
        ([of(SAME), of()], 4, "inconclusive: nothing of new_.jsonl can be compared with base_.jsonl"),
        ([replace(of(SAME), margin=0.1), of(SAME)], 0, "passed: no row is slower by more than 5%"),
        ([replace(of(SAME), margin=0.125)], 0, "passed: no row is slower by more than 12.5%"),
    ):
        assert gate.status(found) == status, words
        assert gate.in_words(found).startswith(f"gate: {words}")
    for interval, text in (
        ((0.9, 1.23456), "0.900 .. 1.235"),
        ((99.9, 100.0), "99.900 .. 100"),
        ((0.0, math.inf), "0.000 .. >99999"),
        ((99999.0, 1e5), "99999 .. >99999"),
        ((math.nan, math.nan), ""),
    ):
        assert gate.span(replace(SAME, estimate=Estimate(1.0, *interval))) == text


def test_a_row_is_named_by_case_size_and_implementation_and_a_message_says_what_is_known() -> None:
    assert gate.name(row(1.0, Verdict.SAME, "a\x1bb")) == f"{case().title}, 1 KiB, a" + printable("\x1b") + "b"
    assert gate.name(WHOLE) == f"{case().title}, all 4, mpi"
    assert gate.name(WRONG) == f"{case().title}, 1 KiB, mpi"
    assert gate.message(SLOWER) == "1 us -> 1.2 us, 1.200x, 1.190 .. 1.210, slower"
    alone = replace(SLOWER, estimate=Estimate(1.2, math.nan, math.nan), verdict=Verdict.UNKNOWN, remark="too few")
    assert gate.message(alone) == "1 us -> 1.2 us, 1.200x, unknown; too few"
    assert gate.message(WHOLE) == "1.200x on average, 1.100 .. 1.300, slower"
    assert gate.message(replace(WRONG, reason="x\x1b")) == printable("right in BASE, wrong in NEW: x\x1b")
    assert gate.message(replace(WRONG, reason="")) == "right in BASE, wrong in NEW"


def test_junit_holds_rows_by_what_they_mean(tmp_path: Path) -> None:
    gate.write_junit(tmp_path / "b.xml", [of(SLOWER, SAME, UNSURE, together=[WHOLE], unmatched=[WRONG])] * 2)
    suite = '  <testsuite name="new_.jsonl against base_.jsonl" tests="5" failures="3" errors="0" skipped="1">'
    assert (tmp_path / "b.xml").read_text().splitlines().count(suite) == 2
    assert of().counts == "no rows"


def test_junit_is_green_only_where_the_gate_is(tmp_path: Path) -> None:
    for found, failed, skipped in (
        (of(), 0, 1),
        (of(unmatched=[Unmatched(case(), "mpi", "right", "missing")]), 0, 2),
        (of(SAME, unmatched=[Unmatched(case(), "mpi", "missing", "right")]), 0, 1),
        (of(SAME, together=[replace(WHOLE, verdict=Verdict.INCONCLUSIVE)]), 0, 1),
        (of(SAME, together=[replace(WHOLE, verdict=Verdict.SAME, estimate=Estimate(1.0, 1.1, 1.3))]), 0, 0),
        (of(unmatched=[WRONG]), 1, 1),
        (of(SAME), 0, 0),
    ):
        gate.write_junit(tmp_path / "a.xml", [found])
        (suite,) = ElementTree.parse(tmp_path / "a.xml").getroot()
        assert (suite.get("failures"), suite.get("skipped")) == (str(failed), str(skipped))
        assert gate.status([found]) == gate.PASSED or failed or skipped


def test_a_ratio_has_as_many_digits_in_every_output_as_its_interval_leaves_and_two_at_least() -> None:
    for value, interval, text in (
        (757 / 719, (0.4, 2.8), "1.05x"),
        (757 / 719, (1.0, 1.1), "1.053x"),
        (1.5, (0.2, 9.0), "1.50x"),
        (17.0731, (1.0, 290.0), "17x"),
        (0.0953, (0.01, 0.9), "0.095x"),
        (0.96, (0.5, 2.0), "0.960x"),
        (1.2, (math.nan, math.nan), "1.200x"),
        (1.2, (0.0, math.inf), "1.20x"),
    ):
        given = replace(SAME, estimate=Estimate(value, *interval))
        assert gate.ratio(given) == text
        assert f", {text}, " in gate.message(given)
        (line,) = [line for line in rows(of(given)) if " mpi " in line]
        assert text in line.split()


def test_only_takes_kinds_together_and_words_of_a_kind_as_alternatives() -> None:
    chosen = selection("all_reduce, 1K..4K,1M.., mpi", ["mpi", "nccl"])
    assert chosen == Selection(frozenset({"allreduce"}), frozenset({"mpi"}), ((1024, 4096), (2**20, math.inf)))
    assert [chosen(case(nbytes=nbytes), "mpi") for nbytes in (1020, 1024, 4096, 4100, 2**24)] == [
        *(False, True, True, False, True)
    ]
    assert not chosen(case(nbytes=4096), "nccl")
    assert not chosen(case("broadcast", nbytes=4096), "mpi")
    assert selection("broadcast", ["broadcast"]) == Selection(implementations=frozenset({"broadcast"}))
    assert selection(" , ,", []) == Selection()
    assert Selection()(case(nbytes=8), "mpi")
    for text, sizes in (
        ("1K..1K", ((1024, 1024),)),
        ("..1", ((0, 1),)),
        ("1M..", ((2**20, math.inf),)),
        ("0", ((0, 0),)),
        ("..", ((0, math.inf),)),
        ("..64K,4K", ((0, 65536), (4096, 4096))),
    ):
        assert selection(text, []) == Selection(sizes=sizes), text


def test_only_names_the_choices_where_a_word_is_none() -> None:
    for word, told in (("alreduce", "allreduce"), ("1Q..2K", "1K..1M"), ("4K..1K", "smaller")):
        with pytest.raises(UsageError, match=told):
            selection(word, ["mpi"])
    with pytest.raises(UsageError) as refused:
        selection("mpj", ["mpi", "ring-flags"])
    told = str(refused.value)
    assert told.startswith("--only: unknown word 'mpj'; choose from: allreduce, ")
    assert told.endswith(", mpi, ring-flags, or a size such as 4K, 1K..1M, 1M.. or ..64K")
