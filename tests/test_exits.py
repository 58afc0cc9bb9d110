"""Exit statuses stand in one table of the code, which the page repeats and from which every other place takes them."""

import re

from collbench import exits
from tests.conftest import ROOT
from tests.layers import modules

SECTION = (ROOT / "docs" / "measuring.md").read_text().partition("\n## Exit statuses\n")[2].partition("\n## ")[0]
ROWS = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in SECTION.splitlines() if line.startswith("|")]
NUMBER = re.compile(r"(?:\b_exit\(|\bsys\.exit\(|\bexit_status = ).*\b\d")  # that a process ends with, or an error has


def test_the_page_has_the_statuses_of_the_code_in_the_same_words() -> None:
    meanings = {", ".join(map(str, numbers)): words for numbers, words in exits.MEANINGS.items()}
    said = {row[0]: row[-1].replace(r"\|", "|") for row in ROWS}
    assert {numbers: said.get(numbers) for numbers in meanings} == meanings
    heading = next(row for row in ROWS if row[0] == "`--exit`")
    for reader, statuses in exits.VERDICTS.items():
        row = next(row for row in ROWS if row[0] == reader)
        pairs = zip(heading[1:], row[1:], strict=True)
        assert {word: int(status) for words, status in pairs for word in words.split(", ")} == statuses, reader


def test_every_other_place_takes_its_status_from_the_table() -> None:
    assert NUMBER.search("os._exit(128 + number)")
    for name, path in modules().items():
        assert not NUMBER.search(path.read_text()), name
