"""What a run's header says of its machine: a picture or a text of its topology, and its environment."""

import io
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from markupsafe import Markup

from collbench.analysis.machine import as_it_ran, discovered, machine
from collbench.errors import CollbenchError, UsageError
from collbench.report.anchors import Anchors
from collbench.report.sanitize import Sound, plain
from collbench.report.sections import AnalysedRun, TextTable, by_run
from collbench.topology import files, render
from collbench.topology.files import to_toml
from collbench.topology.system import System
from collbench.units import visible

WIDEST = 84  # columns of a text
MOST_GPUS = 1024  # that a header's machine may have to be looked at: pairs of them are counted
MOST_LINES = 200
MOST_PICTURE = 100_000  # characters
MOST_PICTURES = 4
MOST_FACTS = 60  # versions or variables of a run


def system_of(run: Sound, name: str | None) -> tuple[System | None, str]:
    """The machine as a System, as named, described or discovered; else none, and why.

    UsageError only for a name that is none: a header may hold anything, and costs no more than its own picture.
    """
    topology = run.run.header.topology
    if name:
        return as_it_ran(files.load(name), run.run), ""
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
        text = to_toml(replace(msgspec.convert(record, System), calibration=""))
        return files.parse(tomllib.loads(text), Path("the header"))
    except UsageError:
        raise
    except Exception as error:  # as above
        raise UsageError(f"the header's system cannot be read ({type(error).__name__})") from None


def picture(system: System, prefix: str) -> str:
    """The system as an SVG element to stand in a page, its names starting with `prefix`; empty if it is too large.

    The text stays text; nothing in it refers to anything outside.
    """
    from collbench.plots.library import matplotlib
    from collbench.plots.styles import UNDATED, style
    from collbench.plots.system import figure

    file = io.StringIO()
    with style(), matplotlib().rc_context({"svg.fonttype": "none"}):
        drawn = figure(system)
        drawn.savefig(file, format="svg", transparent=True, metadata=UNDATED["svg"])
    svg = re.sub(r"\A.*?(?=<svg)|<!--.*?-->|<metadata>.*?</metadata>", "", file.getvalue(), flags=re.DOTALL)
    svg = re.sub(r' id="', f' id="{prefix}', svg)
    svg = re.sub(r'(url\(|xlink:href=")#', rf"\1#{prefix}", svg)
    svg = re.sub(r' (?:width|height)="[^"]*"', "", svg, count=2)  # of the element itself, whose they are the first
    return svg if len(svg) <= MOST_PICTURE else ""


def text_of(run: Sound, system: System | None) -> list[str]:
    """The topology in lines; none where the header does not know it."""
    try:
        topology = discovered(run.run)
        if topology:
            return [visible(line[: 2 * WIDEST]) for line in islice(render.topology_lines(topology, WIDEST), MOST_LINES)]
        return [visible(line) for line in render.system_lines(system, WIDEST)] if system else []
    except Exception:  # the same foreign header
        return []


class MachineView(NamedTuple):
    """What is known of it: a picture, or why there is none, and words."""

    name: str
    picture: Markup
    why_not: str
    guesses: list[str]
    words: str  # lines
    anchor: str  # of the picture


def machines(analysed: Sequence[AnalysedRun], anchors: Anchors) -> list[tuple[str, MachineView]]:
    """Every machine of the runs once, by name; the first few with a picture."""
    machines: dict[str, MachineView] = {}
    for number, one in enumerate(analysed):
        words = "\n".join(text_of(one.run, one.system))
        key = f"{one.system}{words}{one.why_not}"
        if key not in machines:
            drawn = picture(one.system, f"m{number}-") if one.system and len(machines) < MOST_PICTURES else ""
            guesses = [plain(guess) for guess in one.system.guesses] if one.system else []
            anchor = anchors.new("figure", one.run.machine) if drawn else ""
            machines[key] = MachineView(one.run.machine, Markup(drawn), one.why_not, guesses, words, anchor)
    return [(machine.name, machine) for machine in machines.values()]


class EnvironmentView(NamedTuple):
    """Host, versions and variables of a run; none where its file says nothing."""

    tables: list[TextTable]


def environments(analysed: Sequence[AnalysedRun]) -> list[tuple[str, EnvironmentView]]:
    """That of each run."""
    return by_run(analysed, _environment)


def _environment(analysed: AnalysedRun) -> EnvironmentView:
    run = analysed.run
    said = run.run.header.environment
    rows = [(name, text) for name, text in (("host", said.host), ("system", said.system)) if text]
    rows += list(said.versions.items())[:MOST_FACTS]
    rows += [(f"${name}", value) for name, value in list(said.variables.items())[:MOST_FACTS]]
    rows += [(plain(name, 80), plain(value)) for name, value in list(said.rest.items())[:MOST_FACTS] if value]
    if command := " ".join(run.run.header.command):
        rows += [("command", plain(command))]
    return EnvironmentView([TextTable(f"Environment of {run.label}", ("what", "value"), rows)] if rows else [])
