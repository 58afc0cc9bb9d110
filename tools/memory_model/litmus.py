"""Published litmus tests with their verdicts (litmus.txt), and further statements of the ISA (sections.txt)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Litmus:
    """A program, and an outcome that the source allows or forbids."""

    name: str
    initially: dict[str, int]
    threads: list[str]
    allowed: bool
    outcome: str


def published(file: str = "litmus.txt") -> Iterator[Litmus]:
    """Yield the tests in the order of the file; each is a paragraph."""
    text = Path(__file__).with_name(file).read_text()
    for paragraph in text.split("\n\n")[1:]:
        name, *threads, last = paragraph.strip().splitlines()
        initially: dict[str, int] = {}
        if threads[0].startswith("initially: "):
            for setting in threads.pop(0).removeprefix("initially: ").split(", "):
                location, value = setting.split(" = ")
                initially[location] = int(value)
        verdict, _, outcome = last.partition(": ")
        if verdict not in ("allowed", "forbidden"):
            raise ValueError(f"{name}: neither allowed nor forbidden: {last}")
        yield Litmus(name, initially, threads, verdict == "allowed", outcome)
