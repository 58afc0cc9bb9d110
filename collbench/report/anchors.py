"""Names of the places of a page that can be linked to: short, of plain letters, and no two alike."""

import re

SECTIONS = {
    "verdict": "Verdict",
    "curves": "Curves",
    "lesson": "What the size does",
    "which": "Which interconnect",
    "steps": "Steps and training",
    "plans": "Plans of a training run",
    "spent": "Where the time goes",
    "crossovers": "Crossovers",
    "fits": "Latency and bandwidth",
    "verdicts": "Are the numbers right?",
    "machine": "The machine",
    "environment": "Environment",
    "table": "All rows",
}
"""Titles of the parts of the page by their names, in its order."""
LONGEST = 80


class Anchors:
    """What is taken already; the same texts in the same order give the same names."""

    def __init__(self) -> None:
        self._taken = {*SECTIONS}

    def new(self, *words: str) -> str:
        """A name made of these words, numbered where it is taken."""
        plain = re.sub("[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")[:LONGEST] or "figure"
        name, count = plain, 1
        while name in self._taken:
            count += 1
            name = f"{plain}-{count}"
        self._taken.add(name)
        return name
