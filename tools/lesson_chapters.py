"""The lesson's chapters on training steps: collbench/commands/lesson/assets/chapters.json.

The texts are in lesson_chapters.toml.  Their numbers are results of `collbench step`.
"""

import math
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from collbench.cli.options import made
from collbench.commands.lesson import ASSETS, numbers
from collbench.commands.lesson.content import MODEL, Part
from collbench.commands.lesson.numbers import nearest
from collbench.commands.step import sessions
from collbench.commands.step.command import command as step
from collbench.commands.step.overlap import overlaps
from collbench.commands.step.scaling import curves
from collbench.commands.step.trained import Effort, ranking
from collbench.commands.step.work import SgdJob, step_of
from collbench.runfile.store import Run, read
from collbench.units import format_seconds, format_size
from tools import ROOT

MEASURED = ROOT / "results" / "cpu-2-ranks-styles"
TEXTS = Path(__file__).with_suffix(".toml")
_SHOWN = ("name", "title", "choices", "after", "command")  # texts of a chapter that are copied to the page


class Facts(NamedTuple):
    """The numbers of a chapter's run, and the right answer."""

    numbers: Mapping[str, str]  # by the names in the chapter's texts
    answer: int  # index of the right choice


def written() -> Iterator[tuple[Path, str]]:
    chapters = [chapter(text) for text in tomllib.loads(TEXTS.read_text(encoding="utf-8"))["chapter"]]
    yield ASSETS / "chapters.json", msgspec.json.format(msgspec.json.encode(chapters), indent=1).decode() + "\n"


def chapter(text: Part) -> Part:
    """Return a chapter with the numbers of its run: the committed one, or what its command predicts."""
    run = read(MEASURED) if text["name"] == "asynchronous" else predicted(text["command"])
    facts, topology = FACTS[text["name"]](run, text), run.header.topology
    said = {key: text[key].format_map(facts.numbers) for key in ("idea", "ask", "because")}
    source = f"{MODEL}: {topology.name}" if topology.model else numbers.places()[numbers.COMMITTED].source
    return {**{key: text[key] for key in _SHOWN}, **said, "answer": facts.answer, "source": source}


def predicted(command: str) -> Run:
    """Return the run that a command of `collbench step` predicts."""
    _, _, name, *words = command.split()
    made_by = {"scale": sessions.scale_session, "overlap": sessions.overlap_session}
    with tempfile.TemporaryDirectory() as folder:
        context = step.commands[name].make_context(name, [*words, "--out", f"{folder}/run"])
        with made_by[name](made(sessions.StepRequest, context.params)) as session:
            list(session.run())
        return read(Path(folder, "run"))


def _speed_up(run: Run, text: Part) -> Facts:
    """Return the numbers of a scaling at its largest number of ranks."""
    curve = curves(run.results)[0]
    point = curve.last
    row = point.row
    parts = zip(("computing", "waiting", "exposed"), row.parts, strict=True)
    numbers = {part: f"{seconds / sum(row.parts):.0%}" for part, seconds in parts} | {
        "system": run.header.topology.name.split(",")[0],
        "ranks": str(point.ranks),
        "compute": format_seconds(curve.base.row.parts[0]),
        "size": format_size(row.case.nbytes),
        "speedup": f"{curve.speedup(point).value:,.0f} times",
        "efficiency": f"{point.efficiency.value:.1%}",
    }
    choices = [float(choice.rstrip("%")) / 100 for choice in text["choices"]]
    return Facts(numbers, nearest(point.efficiency.value, choices))


def _overlap(run: Run, text: Part) -> Facts:
    """Return the numbers of the fastest step with overlap."""
    known = [each for each in overlaps(run.results) if math.isfinite(each.hidden.value)]
    best = min(known, key=lambda each: each.row.typical)
    hidden = min(1.0, max(0.0, best.hidden.value))
    numbers = {
        "system": run.header.topology.name.split(",")[0],
        "ranks": str(best.row.case.ranks),
        "compute": format_seconds(best.sequential.parts[0]),
        "communicate": format_seconds(best.sequential.parts[2]),
        "sequential": format_seconds(best.sequential.typical),
        "bucket": format_size(step_of(best.row.case).bucket),
        "step": format_seconds(best.row.typical),
        "hidden": f"{hidden:.0%}",
        "exposed": format_seconds(best.exposed.value),
    }
    return Facts(numbers, nearest(hidden, text["shares"]))


def _asynchronous(run: Run, text: Part) -> Facts:
    """Return the numbers of both strategies, and the one that reaches the loss first."""
    ranked = ranking(run.results)
    assert ranked
    entries = {entry.name: entry for entry in ranked.entries}
    names = [choice.partition(",")[0] for choice in text["choices"]]
    case = next(iter(entries[names[0]].runs.values())).case
    seconds = {name: entries[name].mean(Effort.SECONDS).value for name in names}
    slowed = max((factor for _, factor in case.work.slow), default=1) if isinstance(case.work, SgdJob) else 1
    numbers = {name: format_seconds(took) for name, took in seconds.items()}
    numbers |= {f"{name}-steps": f"{entries[name].mean(Effort.STEPS).value:.0f}" for name in names}
    numbers |= {"ranks": str(case.ranks), "factor": f"{slowed:g}", "target": f"{ranked.target:g}"}
    return Facts(numbers, names.index(min(seconds, key=seconds.__getitem__)))


FACTS: Mapping[str, Callable[[Run, Part], Facts]] = {
    "speed-up": _speed_up,
    "overlap": _overlap,
    "asynchronous": _asynchronous,
}
"""The function of each chapter's numbers, by its name."""
