"""No row of a log is lost without a word: in variants of two logs each is read rightly, or told to be left out."""

import re
from collections.abc import Callable

from collbench.commands.formats.imported import Hints, ImportedTest
from collbench.commands.formats.importing import read_tests, remarks
from collbench.commands.formats.source import decode
from collbench.errors import CollbenchError
from tests.commands.formats.goldens import DATA, counted, reported

LOGS = {name: (DATA / name).read_text() for name in ("nccl_tests_2_19.txt", "nccl_tests_trimmed_ranks.txt")}
ROW = re.compile(r"\s*\d+\s+\d+\s+float")
Change = Callable[[str], str]


def of_row(change: Change) -> Change:
    """A change of the fourth row alone, which is neither the first nor the last."""

    def changed(text: str) -> str:
        lines = text.splitlines(keepends=True)
        at = [number for number, line in enumerate(lines) if ROW.match(line)][3]
        return "".join([*lines[:at], change(lines[at].rstrip("\n")) + "\n", *lines[at + 1 :]])

    return changed


def of_rows(change: Change) -> Change:
    """A change of each row."""
    return lambda text: "".join(change(line) if ROW.match(line) else line for line in text.splitlines(keepends=True))


def word(at: int, change: Change) -> Change:
    """A change of a word of a row, which keeps the blanks."""

    def changed(row: str) -> str:
        match = list(re.finditer(r"\S+", row))[at]
        return row[: match.start()] + change(match[0]) + row[match.end() :]

    return changed


def of_two(one: str, other: str) -> Change:
    return lambda text: "".join(f"{one}{line}\n{other}{line}\n" for line in text.splitlines())


def grouped_by(mark: str) -> Change:
    return lambda digits: re.sub(r"(?<=\d)(?=(?:\d{3})+$)", mark, digits)


def in_unit(unit: str, power: int) -> Change:
    return lambda digits: f"{int(digits) / 1024**power:g}{unit}" if int(digits) >= 1024**power else digits


def halves_in_turn(text: str) -> str:
    lines = text.splitlines(keepends=True)
    first, second = [number for number, line in enumerate(lines) if ROW.match(line)][2:4]
    (one, one_rest), (two, two_rest) = ((lines[at][:45], lines[at][45:].lstrip()) for at in (first, second))
    return "".join([*lines[:first], f"{one}\n{two}\n{one_rest}{two_rest}", *lines[second + 1 :]])


TIME, BUSBW, COUNT, SIZE = 5, 7, 1, 0
VARIANTS: dict[str, Change] = {
    "as it is": lambda text: text,
    "cut in a row": lambda text: text[: text.rindex("float") + 30],
    "cut in the last number": lambda text: text[: text.rindex("#", 0, text.index("Out of bounds")) - 2],
    "cut in the header": lambda text: text[text.index("time") :],
    "without its header": lambda text: "".join(line for line in text.splitlines(keepends=True) if "algbw" not in line),
    "rows alone": lambda text: "".join(line for line in text.splitlines(keepends=True) if ROW.match(line)),
    "twice": lambda text: text + text,
    "each row twice": of_rows(lambda row: row + row),
    "header twice": lambda text: re.sub(r"(#\s+size.*\n)", r"\1\1", text),
    "halves in turn": halves_in_turn,
    "two pods": of_two("pod-a | ", "pod-b | "),
    "two tasks of srun": of_two("0: ", "8: "),
    "two clocks": of_two("2026-03-03T10:11:12.1Z ", "2026-03-03T10:11:13.5Z "),
    "nan everywhere": of_row(lambda row: re.sub(r"\d+\.\d+", "nan", row)),
    "ten times": of_row(word(TIME, lambda time: f"{float(time) * 10:.2f}")),
    "no number": of_row(word(TIME, lambda time: "12.x4")),
    "thousands of all": of_rows(lambda row: re.sub(r"\d{4,}", lambda digits: f"{int(digits[0]):,}", row)),
    "thousands by blanks": of_rows(word(SIZE, grouped_by(" "))),
    "thousands by underscores": of_rows(word(SIZE, grouped_by("_"))),
    "decimal commas": of_rows(lambda row: row.replace(".", ",")),
    "K": of_rows(word(SIZE, in_unit("K", 1))),
    "MB": of_rows(word(SIZE, in_unit("MB", 2))),
    "MB apart": of_rows(word(SIZE, in_unit(" MB", 2))),
    "hexadecimal": of_row(word(SIZE, lambda size: hex(int(size)))),
    "semicolons": of_row(lambda row: ";".join(row.split())),
    "commas": of_row(lambda row: ",".join(row.split())),
    "Markdown": of_rows(lambda row: f"| {' | '.join(row.split())} |\n"),
    "CR": lambda text: text.replace("\n", "\r"),
    "colours": of_rows(lambda row: re.sub(r"(\d+\.\d+)", "\x1b[1;32m\\1\x1b[0m", row)),
    "split at a word": of_row(word(TIME, lambda time: f"\n{time}")),
    "split in three": of_row(lambda row: re.sub(r"(\d\.\d)", r"\1\n", row, count=2)),
    "word in front": of_row(lambda row: f"done {row}"),
    "number behind": of_row(lambda row: f"{row}  17.2"),
    "word behind": of_row(lambda row: f"{row}  <- look"),
    "number missing": of_row(word(BUSBW, lambda busbw: "")),
    "type missing": of_row(lambda row: row.replace("float", "")),
    "strange type": of_row(lambda row: row.replace("float", "quaternion")),
    "digits of another script": of_row(word(SIZE, lambda size: size.translate({48 + n: 0x660 + n for n in range(10)}))),
    "log in a row": of_row(word(TIME, lambda time: f"n1:7:7 [0] NCCL INFO x\n{time}")),
}
ENCODED: dict[str, Callable[[str], bytes]] = {
    "latin-1": lambda text: text.replace("float", "float", 1).replace("# Using", "# Größe, Using").encode("latin-1"),
    "UTF-8 with a mark": lambda text: text.encode("utf-8-sig"),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16, big end first": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "NULs in front": lambda text: b"\0" * 64 + text.encode(),
}
TWO = ("twice", "each row twice", "two ")


def right(tests: list[ImportedTest]) -> set[tuple[object, float]]:
    return {(row.case, row.seconds) for row in reported(tests)}


def test_no_row_of_a_hostile_variant_is_read_wrongly_or_lost_without_a_word() -> None:
    refused = []
    for name, text in LOGS.items():
        whole = right(list(read_tests(decode(name, text.encode()), Hints())))
        places = len(whole)
        files = {way: change(text).encode() for way, change in VARIANTS.items()}
        files |= {way: encode(text) for way, encode in ENCODED.items()}
        for way, raw in files.items():
            assert way == "as it is" or raw != text.encode(), way
            rows = sum(bool(ROW.match(line)) for line in text.splitlines()) * (2 if way.startswith(TWO) else 1)
            try:
                tests = list(read_tests(decode(name, raw), Hints()))
            except CollbenchError:
                refused.append(way)
                continue
            assert right(tests) <= whole, (name, way, right(tests) - whole)
            read = len(reported(tests))
            assert read + 2 * counted(tests) >= 2 * rows, (name, way, read, rows, list(remarks(tests)))
            assert read <= places * (2 if way.startswith(TWO) else 1), (name, way)
    assert set(refused) <= {"cut in the header", "rows alone", "thousands by blanks"}, refused


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
