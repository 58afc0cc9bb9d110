"""No row of a log is lost without a word: each row of a damaged log is read rightly, or reported as left out."""

import re
from collections.abc import Callable

from collbench.commands.formats.imported import Hints, ImportedTest
from collbench.commands.formats.importing import read_tests, remarks
from collbench.commands.formats.source import decode
from collbench.errors import CollbenchError
from tests.commands.formats.goldens import DATA, counted, reported

LOGS = {name: (DATA / name).read_text() for name in ("nccl_tests_2_19.txt", "nccl_tests_trimmed_ranks.txt")}
ROW = re.compile(r"\s*\d+\s+\d+\s+float")


def of_rows(change: Callable[[str], str]) -> Callable[[str], bytes]:
    return lambda text: "".join(change(line) if ROW.match(line) else line for line in text.splitlines(True)).encode()


def halves_in_turn(text: str) -> bytes:
    """Break two rows in their middle, and write the four halves in turn, as two writers of one file do."""
    lines = text.splitlines(keepends=True)
    first, second = [number for number, line in enumerate(lines) if ROW.match(line)][2:4]
    (one, one_rest), (two, two_rest) = ((lines[at][:45], lines[at][45:].lstrip()) for at in (first, second))
    return "".join([*lines[:first], f"{one}\n{two}\n{one_rest}{two_rest}", *lines[second + 1 :]]).encode()


DAMAGED: dict[str, Callable[[str], bytes]] = {
    "without its header": lambda text: re.sub(r".*algbw.*\n", "", text).encode(),
    "header twice": lambda text: re.sub(r"(#\s+size.*\n)", r"\1\1", text).encode(),
    "halves in turn": halves_in_turn,
    "thousands": of_rows(lambda row: re.sub(r"\d{4,}", lambda digits: f"{int(digits[0]):,}", row)),
    "decimal commas": of_rows(lambda row: row.replace(".", ",")),
    "semicolons": of_rows(lambda row: ";".join(row.split()) + "\n"),
    "Markdown": of_rows(lambda row: f"| {' | '.join(row.split())} |\n"),
    "types missing": lambda text: text.replace("float", "", 3).encode(),
    "strange types": lambda text: text.replace("float", "quaternion", 3).encode(),
    "number behind": of_rows(lambda row: row.replace("\n", "  17.2\n")),
    "digits of another script": of_rows(lambda row: row.translate({48 + digit: 0x660 + digit for digit in range(10)})),
    "CR": lambda text: text.replace("\n", "\r").encode(),
    "latin-1": lambda text: text.replace("# Using", "# Größe, Using").encode("latin-1"),
    "UTF-8 with a mark": lambda text: text.encode("utf-8-sig"),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16, big end first": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "NULs in front": lambda text: b"\0" * 64 + text.encode(),
}


def right(tests: list[ImportedTest]) -> set[tuple[object, float]]:
    return {(row.case, row.seconds) for row in reported(tests)}


def test_no_row_of_a_damaged_log_is_read_wrongly_or_lost_without_a_word() -> None:
    refused = set()
    for name, text in LOGS.items():
        whole = right(list(read_tests(decode(name, text.encode()), Hints())))
        rows = sum(bool(ROW.match(line)) for line in text.splitlines())
        for way, damage in DAMAGED.items():
            raw = damage(text)
            assert raw != text.encode(), way
            try:
                tests = list(read_tests(decode(name, raw), Hints()))
            except CollbenchError:
                refused.add(way)
                continue
            assert right(tests) <= whole, (name, way, right(tests) - whole)
            read = len(reported(tests))
            assert read + 2 * counted(tests) >= 2 * rows, (name, way, read, rows, list(remarks(tests)))
    assert refused == set()


def test_a_row_that_is_split_or_spoiled_at_any_character_is_read_rightly_or_told() -> None:
    for name, text in LOGS.items():
        tests = list(read_tests(decode(name, text.encode()), Hints()))
        whole, places = right(tests), len(reported(tests))
        lines = text.splitlines(keepends=True)
        at = [number for number, line in enumerate(lines) if ROW.match(line)][1]
        for between in ("\n", "\0", "\n\n"):
            for cut in range(len(lines[at]) - 1):
                split = f"{lines[at][:cut]}{between}{lines[at][cut:]}"
                changed = "".join([*lines[:at], split, *lines[at + 1 :]])
                tests = list(read_tests(decode(name, changed.encode()), Hints()))
                assert right(tests) <= whole, (name, split)
                assert len(reported(tests)) + 2 * counted(tests) >= places, (name, split)
