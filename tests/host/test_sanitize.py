"""Foreign text is one line without anything that a terminal or a spreadsheet obeys; foreign files are bounded."""

import re
from pathlib import Path

import pytest

from collbench.errors import CollbenchError, RunFileError, UsageError
from collbench.host import sanitize
from tools.hostile_files import FACES, THINGS, TOML


def test_a_hostile_name_becomes_one_short_line_and_an_honest_one_stays_as_it_is() -> None:
    for name, face in FACES.items():
        shown = sanitize.text(face)
        assert shown.isprintable(), name
        assert shown.encode(), name
        assert len(shown) <= sanitize.NAME, name
        assert sanitize.text(shown) == shown, name
    for word in ("8 x NVIDIA H100 80GB HBM3, NVSwitch", "Ωμέγα", "שלום", "日本語", "a-b_c (2)", ""):
        assert sanitize.text(word) == sanitize.message(word) == word


def test_a_sign_stands_for_each_control_breaks_are_blanks_and_a_cut_is_marked() -> None:
    assert sanitize.text("a\x1b[31mb\u202ec\ud800\u200b") == "a\ufffd[31mb\ufffdc\ufffd\ufffd"
    assert sanitize.text("a\u3164b\ufe0fc") == "a\ufffdb\ufffdc"
    assert sanitize.text("a \t\r\n b\u2028c") == "a b c"
    assert sanitize.text("x" * 500, 10) == "xxxxxxxxx…"
    assert str(UsageError("unknown name '\x1b[31m'\nchoose")) == "unknown name '\ufffd[31m' choose"
    assert str(CollbenchError()) == ""


def test_of_a_message_only_its_long_words_are_cut() -> None:
    said = sanitize.message(f"cannot read /head/{'n' * 100_000}/tail.jsonl: no such file; give another")
    assert said.startswith("cannot read /head/nnn")
    assert said.endswith("nnn/tail.jsonl: no such file; give another")
    assert len(said) < 500
    assert len(sanitize.message("word " * 100_000)) == sanitize.MESSAGE


def test_records_are_sanitised_in_names_too_and_their_depth_is_bounded() -> None:
    assert sanitize.tree({"printed": {"algo": "a\tb  c\x1b[0m"}}) == {"printed": {"algo": "a b c\ufffd[0m"}}
    assert sanitize.tree({"a\x00": ["b\x07", 1, None]}) == {"a\ufffd": ["b\ufffd", 1, None]}
    deep: object = "end"
    for _ in range(sanitize.DEEPEST + 1):
        deep = [deep]
    assert "end" not in str(sanitize.tree(deep))
    assert "end" in str(sanitize.tree(deep[0]))  # type: ignore[index]


def test_a_formula_gets_a_quote_and_a_number_or_a_name_none() -> None:
    for word in ("=1+1", "+cmd|x", "-2+3", "@SUM(A1)", "\t=1", "  =1", "-"):
        assert sanitize.cell(word) == f"'{word}"
    for plain in ("-1.5e-06", "+3", "name", "", 5, -5.0, None, "a=b"):
        assert sanitize.cell(plain) == plain


def test_a_million_signs_of_any_kind_take_time_in_proportion() -> None:
    for sign in (" ", "\t", "\x1b", "a", "\u200b", "\ud800"):
        for word in (sign * 10**6, sign * 10**6 + "b", ("a" + sign) * 5 * 10**5):
            assert len(sanitize.text(word)) <= sanitize.NAME
            assert len(sanitize.message(word)) <= sanitize.MESSAGE


def test_what_is_no_regular_file_of_a_bounded_size_is_refused_at_once(tmp_path: Path) -> None:
    for number, thing in enumerate(THINGS[:7]):
        thing.make(path := tmp_path / f"{number}")
        with (
            pytest.raises(RunFileError, match=r"^cannot read .*/\d: ") as refused,
            sanitize.safe_read(path, RunFileError),
        ):
            pass
        assert "\n" not in str(refused.value), thing.name
    (tmp_path / "it").write_bytes(bytes(2**12 + 1))
    with pytest.raises(UsageError, match=r"it has 4097 bytes, and 4 KiB are the most"):
        sanitize.safe_read(tmp_path / "it", UsageError, 2**12).__enter__()
    with sanitize.safe_read(tmp_path / "it", UsageError, 2**12 + 1) as file:
        assert len(file.read()) == 2**12 + 1


def test_a_line_that_is_too_long_costs_itself(tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(b"a\n" + b"x" * (2 * sanitize.LINE_BYTES + 5) + b"\nb\n")
    read = list(sanitize.read_lines(tmp_path / "it", RunFileError))
    assert [number for number, _ in read] == [1, 2, 3]
    assert (read[0][1], read[2][1]) == (b"a\n", b"b\n")
    with pytest.raises(ValueError, match="longer than 16 MiB"):
        sanitize.parse_object(read[1][1])


def test_what_json_may_not_hold_is_named() -> None:
    for line, complaint in {
        b"\xff": "not UTF-8 text",
        b"[1]": "not a JSON object",
        b"{": "not JSON",
        b"[" * 100_000: "not JSON",
        b'{"a": NaN}': "NaN is no number",
        b'{"a": -Infinity}': "-Infinity is no number",
        b'{"a": 9223372036854775809}': "the number 9223372036854775809 is larger than 2**63",
        b'{"a": ' + b"9" * 5000 + b"}": "value has 5000 digits",
        b'{"a": 1, "a": 2}': "field 'a' is there twice",
        b'{"b": {"a\\u001b": 1, "a\\u001b": 2}}': "field 'a\ufffd' is there twice",
    }.items():
        with pytest.raises(ValueError, match=re.escape(complaint)):
            sanitize.parse_object(line)


def test_texts_are_sanitised_however_they_were_written() -> None:
    assert sanitize.parse_object(b'{"a": "\\u001b[31m", "b\x7f": "\x7f", "c": 1.5}') == {
        "a": "\ufffd[31m",
        "b\ufffd": "\ufffd",
        "c": 1.5,
    }
    line = '{"a": "\u202e", "printed": {"algo": "x\\ty"}}'.encode()
    assert sanitize.parse_object(line) == {"a": "\ufffd", "printed": {"algo": "x y"}}
    assert len(sanitize.parse_object(b'{"a": "' + b"n" * 100_000 + b'"}')["a"]) == 200


def test_what_toml_may_not_hold_is_named_in_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "it.toml"
    for text, complaint in {
        "x = " + "[" * 10_000: "nested too deeply",
        "x = " + "9" * 5000: "value has 5000 digits",
        "x = " + "9" * 20: "larger than 2**63",
        "a." * 60_000 + "b = 1": "a key of 25 parts or more",
        '"a".' * 30_000 + "b = 1": "a key of 25 parts or more",
        "x =": "cannot be read: Invalid value",
        "x = 1\nx = 2": "cannot be read: Cannot overwrite",
        "#" + "x" * 2**18: "256 KiB are the most",
    }.items():
        path.write_text(text)
        with pytest.raises(UsageError, match=re.escape(complaint)):
            sanitize.read_toml(path, UsageError)
    for text in ("#" + "a" * 200_000, "#" + "a " * 100_000, "#" + "a-" * 100_000, "#" + '"' * 200_000):
        path.write_text(text)
        assert sanitize.read_toml(path, UsageError) == {}
    path.write_text(TOML.replace('"x"', '"a\\u001bb"'))
    assert sanitize.read_toml(path, UsageError)["name"] == "a\ufffdb"
