"""The gate's words, figures and files from rows that are given, and `--only`, which chooses the rows."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.analysis.comparison import Comparison, Row, Together, overall
from collbench.analysis.judgement import EXITS, Judgement, Word
from collbench.analysis.matching import Selection, Unmatched, selection
from collbench.commands.compare.command import junit_tests, message, ratio_in_words, rows
from collbench.errors import UsageError
from collbench.runfile.schema import Header
from collbench.runfile.store import Run
from collbench.stats import Estimate
from collbench.units import printable
from tests.conftest import case, measurement


def row(word: Word, *ratio: float, reason: str = "") -> Row:
    one = measurement()
    return Row(one, one, 1e-6, ratio[0] * 1e-6, Judgement("a row", "base", word, reason, Estimate(*ratio), limit=1.05))


SLOW, SAME = row(Word.SLOW, 1.2, 1.19, 1.21), row(Word.OK, 1.0, 0.99, 1.01)
UNSURE = row(Word.UNKNOWN, 1.049, 1.039, 1.059, reason="inconclusive: may be slower")
WHOLE = Together(case(nbytes=0), "mpi", 4, replace(SLOW.judgement, ratio=Estimate(1.2, 1.1, 1.3)))
WRONG, SKIPPED = (Unmatched(case(), "mpi", "right", word, "why") for word in ("wrong", "skipped"))


def of(*rows: Row, together: Sequence[Together] = (), unmatched: Sequence[Unmatched] = ()) -> Comparison:
    base, new = (Run(Path(name), Header(), (), True) for name in ("base_.jsonl", "new_.jsonl"))
    return Comparison(base, new, rows, tuple(together), tuple(unmatched), (), 0.05, 0.95, ())


def test_the_judgement_is_that_of_all_comparisons() -> None:
    for found, status, words in (
        ([of(SAME)], 0, "OK no row is slower by more than 5%"),
        ([of(SAME), of(SLOW)], 3, "SLOW 1 row slower by more than 5%"),
        ([of(SLOW, UNSURE, together=[WHOLE]), of(SLOW)], 3, "SLOW 2 rows slower by more than 5%, 1 curve"),
        ([of(SAME, unmatched=[WRONG])], 3, "WRONG 1 row wrong or failed"),
        ([of(SLOW, unmatched=[WRONG])], 3, "WRONG 1 row slower by more than 5%, 1 row wrong or failed"),
        ([of(SAME), of(UNSURE, unmatched=[SKIPPED]), of(UNSURE)], 4, "UNKNOWN 3 rows may be slower by more than"),
        ([of(SAME), of()], 4, "UNKNOWN nothing of new_.jsonl can be compared with base_.jsonl"),
        ([replace(of(SAME), margin=0.1), of(SAME)], 0, "OK no row is slower by more than 10%"),
        (
            [replace(of(SAME), margin=0.125, margin_from="margin 12%, from")],
            0,
            "OK no row is slower by more than 12.5%",
        ),
    ):
        judgement = overall(found)
        assert EXITS["plain"][judgement.word] == status, words
        assert f"{judgement.word.value} {judgement.reason}".startswith(words)
        assert judgement.reason.endswith("; margin 12%, from") is bool(found[0].margin_from)
    judgement = overall([of(SLOW, together=[WHOLE], unmatched=[WRONG])])
    assert (judgement.what, judgement.against, judgement.ratio.value) == ("new_.jsonl", "base_.jsonl", 1.2)


def test_a_message_says_what_is_known() -> None:
    odd = "a\x1bb"
    assert Unmatched(case(), odd, "right", "wrong").judgement.what == f"{case().title}, 1 KiB, {printable(odd)}"
    assert message(SLOW) == "1 us -> 1.2 us, 1.200x, 1.190 .. 1.210"
    assert message(row(Word.UNKNOWN, 1.2, math.nan, math.nan, reason="too few")) == "1 us -> 1.2 us, 1.200x, too few"
    assert message(WHOLE) == "1.200x on average, 1.100 .. 1.300"
    assert message(replace(WRONG, reason="x\x1b")) == printable("right in BASE, wrong in NEW: x\x1b")
    assert message(replace(WRONG, reason="")) == "right in BASE, wrong in NEW"


def test_junit_is_green_only_where_the_gate_is() -> None:
    level = replace(WHOLE, judgement=replace(WHOLE.judgement, word=Word.OK))
    for found, failed, skipped in (
        (of(SLOW, SAME, UNSURE, together=[WHOLE], unmatched=[WRONG]), 3, 1),
        (of(), 0, 1),
        (of(unmatched=[Unmatched(case(), "mpi", "right", "missing")]), 0, 2),
        (of(SAME, unmatched=[Unmatched(case(), "mpi", "missing", "right")]), 0, 1),
        (of(SAME, together=[replace(level, judgement=UNSURE.judgement)]), 0, 1),
        (of(SAME, together=[level]), 0, 0),
        (of(unmatched=[WRONG]), 1, 1),
        (of(SAME), 0, 0),
    ):
        words = [test.word for test in junit_tests(found)]
        assert (sum(word.bad for word in words), words.count(Word.UNKNOWN)) == (failed, skipped)
        assert found.judgement.word is Word.OK or failed or skipped
    assert of().counts == "no rows"


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
        given = row(Word.OK, value, *interval)
        assert ratio_in_words(given) == text
        assert f", {text}" in message(given)
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
    assert told.endswith(", mpi, ring-flags, or a size like 4K, 1K..1M, 1M.. or ..64K")
