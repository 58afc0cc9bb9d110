"""Foreign words on one line, of bounded length, with nothing in them that a terminal or a spreadsheet obeys."""

from collbench import clean
from collbench.errors import CollbenchError, UsageError
from tools.hostile_files import FACES


def test_a_hostile_name_becomes_one_short_line_and_an_honest_one_stays_as_it_is() -> None:
    for name, face in FACES.items():
        shown = clean.text(face)
        assert shown.isprintable(), name
        assert shown.encode(), name
        assert len(shown) <= clean.NAME, name
        assert clean.text(shown) == shown, name
    for word in ("8 x NVIDIA H100 80GB HBM3, NVSwitch", "Ωμέγα", "שלום", "日本語", "a-b_c (2)", ""):
        assert clean.text(word) == clean.message(word) == word


def test_a_sign_stands_for_each_control_breaks_are_blanks_and_a_cut_is_marked() -> None:
    assert clean.text("a\x1b[31mb\u202ec\ud800\u200b") == "a\ufffd[31mb\ufffdc\ufffd\ufffd"
    assert clean.text("a\u3164b\ufe0fc") == "a\ufffdb\ufffdc"
    assert clean.text("a \t\r\n b\u2028c") == "a b c"
    assert clean.text("x" * 500, 10) == "xxxxxxxxx…"
    assert str(UsageError("unknown name '\x1b[31m'\nchoose")) == "unknown name '\ufffd[31m' choose"
    assert str(CollbenchError()) == ""


def test_of_a_message_only_its_long_words_are_cut() -> None:
    said = clean.message(f"cannot read /head/{'n' * 100_000}/tail.jsonl: no such file; give another")
    assert said.startswith("cannot read /head/nnn")
    assert said.endswith("nnn/tail.jsonl: no such file; give another")
    assert len(said) < 500
    assert len(clean.message("word " * 100_000)) == clean.MESSAGE


def test_records_are_cleaned_in_names_too_and_their_depth_is_bounded() -> None:
    assert clean.verbatim("a\tb   c\x1b[0m") == "a\tb   c\ufffd[0m"
    fields = clean.record({"printed": {"line": "a\tb  c"}, "note": "a\tb  c"})
    assert fields == {"printed": {"line": "a\tb  c"}, "note": "a b c"}
    assert clean.record({"a\x00": ["b\x07", 1, None]}) == {"a\ufffd": ["b\ufffd", 1, None]}
    deep: object = "end"
    for _ in range(clean.DEEPEST + 1):
        deep = [deep]
    assert "end" not in str(clean.record(deep))
    assert "end" in str(clean.record(deep[0]))  # type: ignore[index]


def test_a_formula_gets_a_quote_and_a_number_or_a_name_none() -> None:
    for word in ("=1+1", "+cmd|x", "-2+3", "@SUM(A1)", "\t=1", "  =1", "-"):
        assert clean.cell(word) == f"'{word}"
    for plain in ("-1.5e-06", "+3", "name", "", 5, -5.0, None, "a=b"):
        assert clean.cell(plain) == plain


def test_a_million_signs_of_any_kind_take_time_in_proportion() -> None:
    for sign in (" ", "\t", "\x1b", "a", "\u200b", "\ud800"):
        for word in (sign * 10**6, sign * 10**6 + "b", ("a" + sign) * 5 * 10**5):
            assert len(clean.text(word)) <= clean.NAME
            assert len(clean.message(word)) <= clean.MESSAGE
            assert clean.verbatim(word)
