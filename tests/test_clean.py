"""Foreign words on one line, of bounded length, with nothing in them that a terminal or a spreadsheet obeys."""

import time

import pytest

from collbench import clean
from collbench.errors import CollbenchError, UsageError
from tests.hostile_files import FACES


@pytest.mark.parametrize("face", FACES)
def test_a_hostile_name_becomes_one_short_line(face: str) -> None:
    """Cleaned twice it stays what it is."""
    shown = clean.text(FACES[face])
    assert shown.isprintable()
    assert shown.encode()
    assert len(shown) <= clean.NAME
    assert clean.text(shown) == shown


@pytest.mark.parametrize("word", ["8 x NVIDIA H100 80GB HBM3, NVSwitch", "Ωμέγα", "שלום", "日本語", "a-b_c (2)", ""])
def test_an_honest_name_stays_as_it_is(word: str) -> None:
    """Also in scripts that run from right to left."""
    assert clean.text(word) == word
    assert clean.message(word) == word


def test_what_was_there_can_be_seen() -> None:
    """A sign for each control; breaks are blanks; a cut is marked."""
    assert clean.text("a\x1b[31mb\u202ec\ud800\u200b") == "a\ufffd[31mb\ufffdc\ufffd\ufffd"
    assert clean.text("a \t\r\n b\u2028c") == "a b c"
    assert clean.text("x" * 500, 10) == "xxxxxxxxx…"


def test_of_a_message_only_its_long_words_are_cut() -> None:
    """Head and tail of a path stay, and the advice behind it."""
    path = f"/head/{'n' * 100_000}/tail.jsonl"
    said = clean.message(f"cannot read {path}: no such file; give another")
    assert said.startswith("cannot read /head/nnn")
    assert said.endswith("nnn/tail.jsonl: no such file; give another")
    assert len(said) < 500
    assert len(clean.message("word " * 100_000)) == clean.MESSAGE


def test_every_error_is_cleaned_where_it_is_raised() -> None:
    """So that no place that prints one must think of it."""
    assert str(UsageError("unknown name '\x1b[31m'\nchoose")) == "unknown name '\ufffd[31m' choose"
    assert str(CollbenchError()) == ""


def test_lines_of_other_tools_keep_their_tabs_and_blanks() -> None:
    """An export writes them as they were, but for controls."""
    assert clean.verbatim("a\tb   c\x1b[0m") == "a\tb   c\ufffd[0m"
    fields = clean.record({"printed": {"line": "a\tb  c"}, "note": "a\tb  c"})
    assert fields == {"printed": {"line": "a\tb  c"}, "note": "a b c"}


def test_names_of_fields_are_cleaned_and_depth_is_bounded() -> None:
    """What lies deeper than anything of ours is left out."""
    assert clean.record({"a\x00": ["b\x07", 1, None]}) == {"a\ufffd": ["b\ufffd", 1, None]}
    deep: object = "end"
    for _ in range(clean.DEEPEST + 1):
        deep = [deep]
    assert "end" not in str(clean.record(deep))
    assert "end" in str(clean.record(deep[0]))  # type: ignore[index]


@pytest.mark.parametrize("word", ["=1+1", "+cmd|x", "-2+3", "@SUM(A1)", "\t=1", "  =1", "-"])
def test_a_formula_gets_a_quote(word: str) -> None:
    """Also behind blanks, which spreadsheets take away."""
    assert clean.cell(word) == f"'{word}"


@pytest.mark.parametrize("word", ["-1.5e-06", "+3", "name", "", 5, -5.0, None, "a=b"])
def test_a_number_or_a_name_gets_none(word: object) -> None:
    """A column of numbers stays one."""
    assert clean.cell(word) == word


@pytest.mark.parametrize("sign", [" ", "\t", "\x1b", "a", "\u200b", "\ud800"])
def test_time_grows_with_the_length_only(sign: str) -> None:
    """A million signs of any kind, alone or before one that ends them."""
    start = time.perf_counter()
    for word in (sign * 10**6, sign * 10**6 + "b", ("a" + sign) * 5 * 10**5):
        clean.text(word)
        clean.message(word)
        clean.verbatim(word)
    assert time.perf_counter() - start < 10
