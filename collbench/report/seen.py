"""A run with all that was found out about it, and how a part of the page speaks of several."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from collbench.analysis.fit import runs
from collbench.report.markup import Markup, joined, tag
from collbench.report.sanitize import Sound
from collbench.report.verdicts import Judgement
from collbench.topology.system import System


@dataclass(frozen=True)
class Seen:
    """A run and what was found out about it."""

    run: Sound
    system: System | None
    why_not: str  # there is no system
    fits: Sequence[runs.Curve]
    judgement: Judgement


def by_run(found: Sequence[Seen], part: Any) -> Iterator[Markup]:
    """What a part says of each run, below its name where there are several."""
    for seen in found:
        said = [*part(seen)]
        if said:
            yield joined([tag("h3", seen.run.label), *said] if len(found) > 1 else said)


def section(name: str, words: str, *children: str, class_: str = "") -> Markup:
    """A part of the page below its heading, which is its name for those who listen."""
    inner = children or (tag("p", "There is nothing to say here.", class_="note"),)
    return tag(
        "section",
        tag("h2", words, id=f"{name}-title"),
        *inner,
        id=name,
        aria_labelledby=f"{name}-title",
        class_=class_ or False,
    )


def distinct(values: Iterable[Any]) -> list[Any]:
    """Each once, in their order."""
    return list(dict.fromkeys(values))
