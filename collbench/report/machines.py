"""What a run's header says of its machine: a picture or a text of its topology, and its environment."""

import io
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from collbench.analysis.machine import discovered, machine
from collbench.errors import CollbenchError, UsageError
from collbench.report.markup import Markup, Seen, by_run, joined, section, table, tag
from collbench.report.sanitize import Sound, plain
from collbench.topology import files, system_text, topology_text
from collbench.topology.files import to_toml
from collbench.topology.system import System
from collbench.topology.topology import from_record
from collbench.units import visible

WIDEST = 84  # columns of a text
MOST_GPUS = 1024  # that a header's machine may have to be looked at: pairs of them are counted
MOST_LINES = 200
MOST_PICTURE = 200_000  # characters


def system_of(run: Sound, name: str | None) -> tuple[System | None, str]:
    """The machine as a System, as named, described or discovered; else none, and why.

    UsageError only for a name that is none: a header may hold anything, and costs no more than its own picture.
    """
    topology = run.run.header.topology
    if name:
        return files.load(name), ""
    try:
        if topology.model:
            return _described(topology.system), ""
        if len(topology.gpus) > MOST_GPUS:
            return None, f"more than {MOST_GPUS} GPUs in one header"
        return machine(run.run, None), ""
    except CollbenchError as error:
        return None, plain(str(error))
    except Exception as error:
        # Any type may stand anywhere in a foreign header, so any error may come of reading it.
        return None, f"the header's topology cannot be read ({plain(type(error).__name__)})"


def _described(record: Mapping[str, Any]) -> System:
    """The system of a predicted run's header; it is read back like a user's file, so that it is no odder than one."""
    try:
        # A calibration would name a file of the machine that the run comes from.
        text = to_toml(replace(from_record(System, record), calibration=""))
        return files.parse(tomllib.loads(text), Path("the header"))
    except UsageError:
        raise
    except Exception as error:  # as above
        raise UsageError(f"the header's system cannot be read ({type(error).__name__})") from None


def picture(system: System, prefix: str) -> str:
    """The system as an SVG element to stand in a page, its names starting with `prefix`; empty if it is too large.

    The text stays text; nothing in it refers to anything outside.
    """
    import matplotlib

    from collbench.figures.styles import UNDATED, style
    from collbench.figures.system import figure

    file = io.StringIO()
    with style(), matplotlib.rc_context({"svg.fonttype": "none"}):
        drawn = figure(system)
        for text in drawn.findobj(lambda artist: hasattr(artist, "set_parse_math")):
            text.set_parse_math(False)  # type: ignore[attr-defined]
        drawn.savefig(file, format="svg", transparent=True, metadata=UNDATED["svg"])
    svg = re.sub(r"\A.*?(?=<svg)|<!--.*?-->|<metadata>.*?</metadata>", "", file.getvalue(), flags=re.DOTALL)
    svg = re.sub(r' id="', f' id="{prefix}', svg)
    svg = re.sub(r'(url\(|xlink:href=")#', rf"\1#{prefix}", svg)
    svg = re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1
    )
    return svg if len(svg) <= MOST_PICTURE else ""


def text_of(run: Sound, system: System | None) -> list[str]:
    """The topology in lines; none where the header does not know it."""
    try:
        topology = discovered(run.run)
        if topology:
            return [visible(line[: 2 * WIDEST]) for line in islice(topology_text.lines(topology, WIDEST), MOST_LINES)]
        return [visible(line) for line in system_text.lines(system, WIDEST)] if system else []
    except Exception:  # the same foreign header
        return []


MOST_FACTS = 60  # versions or variables of a run
MOST_PICTURES = 4


def machines(found: Sequence[Seen]) -> Markup:
    """A picture of each machine, or what is known of it in words."""
    parts: list[str] = []
    shown: set[str] = set()
    for number, seen in enumerate(found):
        lines = "\n".join(text_of(seen.run, seen.system))
        key = f"{seen.system}{lines}{seen.why_not}"
        if key not in shown:
            shown.add(key)
            parts.append(_machine(seen, lines, f"m{number}-" if len(shown) <= MOST_PICTURES else ""))
    return section("machine", "The machine", *parts)


def _machine(seen: Seen, lines: str, prefix: str) -> Markup:
    name = tag("h3", seen.run.machine)
    drawn = picture(seen.system, prefix) if seen.system and prefix else ""
    label = f"Picture of {seen.run.machine}; the same in words follows"
    parts = [tag("div", Markup(drawn), class_="picture", role="img", aria_label=label)] if drawn else []
    if not seen.system:
        parts.append(tag("p", f"No picture: {seen.why_not}.", class_="note"))
    if seen.system and seen.system.guesses:
        parts.append(tag("p", f"Assumed: {'; '.join(map(plain, seen.system.guesses))}.", class_="note"))
    if lines:
        parts.append(tag("pre", lines, tabindex="0", role="region", aria_label=f"{seen.run.machine} in words"))
    return joined([name, *parts])


def environment(found: Sequence[Seen]) -> Markup:
    """Host, versions and variables of each run."""
    return section("environment", "Environment", *by_run(found, _environment))


def _environment(seen: Seen) -> Iterator[str]:
    said = seen.run.run.header.environment
    rows = [(name, text) for name, text in (("host", said.host), ("system", said.system)) if text]
    rows += list(said.versions.items())[:MOST_FACTS]
    rows += [(f"${name}", value) for name, value in list(said.variables.items())[:MOST_FACTS]]
    rows += [(plain(name, 80), plain(value)) for name, value in list(said.rest.items())[:MOST_FACTS] if value]
    if command := " ".join(seen.run.run.header.command):
        rows += [("command", plain(command))]
    if rows:
        yield table(f"Environment of {seen.run.label}", ("what", "value"), rows, class_="narrow")
    else:
        yield tag("p", "The run file does not say.", class_="note")
    if not said.variables:
        yield tag("p", "None of the variables that change these numbers was set.", class_="note")
