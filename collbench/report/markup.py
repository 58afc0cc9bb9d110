"""HTML from text that nobody vouches for: whatever is no Markup is escaped, so nothing can be forgotten."""

import html
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from collbench.analysis.fit import runs
from collbench.report.sanitize import Sound
from collbench.report.verdicts import Judgement
from collbench.topology.system import System

VOID = ("input", "meta", "br")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """Itself if it is HTML already, else with everything that HTML would heed written out."""
    return text if isinstance(text, Markup) else Markup(html.escape(text))


def tag(name: str, *children: str, **attributes: str | bool) -> Markup:
    """An element; `class_` stands for class, `aria_label` for aria-label, True for an attribute without a value."""
    said = [
        f" {_key(key)}" if value is True else f' {_key(key)}="{escaped(str(value))}"' for key, value in _set(attributes)
    ]
    start = f"<{name}{''.join(said)}>"
    return Markup(start if name in VOID else f"{start}{joined(children)}</{name}>")


def joined(parts: Iterable[str], between: str = "") -> Markup:
    """Several one after the other."""
    return Markup(between.join(escaped(part) for part in parts))


def table(caption: str, heading: Sequence[str], rows: Iterable[Sequence[str]], **attributes: str | bool) -> Markup:
    """A table in a box that scrolls by itself, also with the keyboard; a row's first cell is its heading."""
    head = tag("tr", *(tag("th", words, scope="col") for words in heading))
    lines = [tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in rest)) for first, *rest in rows]
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *lines), **attributes)
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def data_block(value: Any) -> Markup:
    """JSON that may stand inside a script element: no character in it means anything to HTML or to old JavaScript."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII, so U+2028 is escaped too
    for each in "<>&":
        text = text.replace(each, f"\\u{ord(each):04x}")
    return Markup(text)


def _set(attributes: dict[str, str | bool]) -> Iterable[tuple[str, str | bool]]:
    return ((key, value) for key, value in attributes.items() if value is not False)


def _key(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


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
