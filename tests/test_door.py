"""The one door for files: regular, bounded, parsed, and every refusal says in one line what, which bound and why."""

import re
from pathlib import Path

import pytest

from collbench import door
from collbench.errors import RunFileError, UsageError
from tools.hostile_files import THINGS, TOML


def test_what_is_no_regular_file_of_a_bounded_size_is_refused_at_once(tmp_path: Path) -> None:
    for number, thing in enumerate(THINGS[:7]):
        thing.make(path := tmp_path / f"{number}")
        with pytest.raises(RunFileError, match=r"^cannot read .*/\d: ") as refused, door.opened(path):
            pass
        assert "\n" not in str(refused.value), thing.name
    (tmp_path / "it").write_bytes(bytes(2**12 + 1))
    with pytest.raises(UsageError, match=r"it has 4097 bytes, and 4 KiB are the most"):
        door.opened(tmp_path / "it", 2**12, UsageError).__enter__()
    with door.opened(tmp_path / "it", 2**12 + 1) as file:
        assert len(file.read()) == 2**12 + 1


def test_a_line_that_is_too_long_costs_itself(tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(b"a\n" + b"x" * (2 * door.LONGEST + 5) + b"\nb\n")
    read = list(door.lines(tmp_path / "it"))
    assert [number for number, _ in read] == [1, 2, 3]
    assert (read[0][1], read[2][1]) == (b"a\n", b"b\n")
    with pytest.raises(ValueError, match="longer than 16 MiB"):
        door.record(read[1][1])


def test_what_json_may_not_hold_is_named() -> None:
    for line, complaint in {
        b"\xff": "not UTF-8 text",
        b"[1]": "not a JSON object",
        b"{": "not JSON",
        b"[" * 100_000: "not JSON",
        b'{"a": NaN}': "NaN is no number",
        b'{"a": -Infinity}': "-Infinity is no number",
        b'{"a": 9223372036854775809}': "the number 9223372036854775809 is larger than 2**63",
        b'{"a": ' + b"9" * 5000 + b"}": "a number of 400 digits or more",
        b'{"a": 1, "a": 2}': "field 'a' is there twice",
        b'{"b": {"a\\u001b": 1, "a\\u001b": 2}}': "field 'a\ufffd' is there twice",
    }.items():
        with pytest.raises(ValueError, match=re.escape(complaint)):
            door.record(line)


def test_texts_are_clean_however_they_were_written() -> None:
    assert door.record(b'{"a": "\\u001b[31m", "b\x7f": "\x7f", "c": 1.5}') == {
        "a": "\ufffd[31m",
        "b\ufffd": "\ufffd",
        "c": 1.5,
    }
    line = '{"a": "\u202e", "printed": {"line": "x\\ty"}}'.encode()
    assert door.record(line) == {"a": "\ufffd", "printed": {"line": "x\ty"}}
    assert len(door.record(b'{"a": "' + b"n" * 100_000 + b'"}')["a"]) == 200


def test_what_toml_may_not_hold_is_named_in_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "it.toml"
    for text, complaint in {
        "x = " + "[" * 10_000: "nested too deeply",
        "x = " + "9" * 5000: "a number of 400 digits or more",
        "a." * 60_000 + "b = 1": "a key of 25 parts or more",
        '"a".' * 30_000 + "b = 1": "a key of 25 parts or more",
        "x =": "cannot be read: Invalid value",
        "x = 1\nx = 2": "cannot be read: Cannot overwrite",
        "#" + "x" * 2**18: "256 KiB are the most",
    }.items():
        path.write_text(text)
        with pytest.raises(UsageError, match=re.escape(complaint)):
            door.described(path)
    for text in ("#" + "a" * 200_000, "#" + "a " * 100_000, "#" + "a-" * 100_000, "#" + '"' * 200_000):
        path.write_text(text)
        assert door.described(path) == {}
    path.write_text(TOML.replace('"x"', '"a\\u001bb"'))
    assert door.described(path)["name"] == "a\ufffdb"
