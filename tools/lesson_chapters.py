"""The chapters on training steps: those of the lesson's page, and docs/lesson-scaling.md, which has more of them.

`python -m tools.lesson` writes them into collbench/commands/lesson/assets/chapters.json and docs/lesson-scaling.md,
from the texts in lesson_chapters.toml.
"""

import math
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from collbench.analysis.wires import tradeoffs
from collbench.cli.options import made
from collbench.commands.lesson import ASSETS, elsewhere
from collbench.commands.lesson.content import MODEL, Part
from collbench.commands.lesson.numbers import Numbers, nearest, ratio
from collbench.commands.step import command as step
from collbench.commands.step.overlap import overlaps
from collbench.commands.step.scaling import curves, share_of
from collbench.commands.step.stragglers import straggler_rows, straggler_test
from collbench.commands.step.trained import Effort, Ranking, ranking
from collbench.results import Result
from collbench.runfile.store import Run, read
from collbench.units import format_seconds, format_size
from tools import ROOT

ASSET = ASSETS / "chapters.json"
PAGE = ROOT / "docs" / "lesson-scaling.md"
MEASURED = ROOT / "results" / "cpu-2-ranks-styles"
TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_SHOWN = ("name", "title", "choices", "after", "command")  # of a chapter's texts, as they are on the page


class Facts(NamedTuple):
    """What the run of a chapter says."""

    numbers: Mapping[str, str]  # by the names in the chapter's texts
    answer: int  # index of the right choice


def written() -> str:
    """Return the text of the file that the package brings."""
    return msgspec.json.format(msgspec.json.encode(chapters()), indent=1).decode() + "\n"


@cache
def chapters() -> list[Part]:
    """Return the chapters of the lesson's page."""
    return [chapter(text) for text in TEXTS["chapter"] if "ask" in text]


def chapter(text: Part) -> Part:
    """Return a chapter with the numbers of its run: the committed one, or what its command predicts."""
    run = read(MEASURED) if text["name"] == "asynchronous" else predicted(text["command"])
    facts, topology = FACTS[text["name"]](run, text), run.header.topology
    source = f"{MODEL}: {topology.name}" if topology.model else elsewhere.places()[elsewhere.COMMITTED].source
    said = {key: text[key].format_map(facts.numbers) for key in ("idea", "ask", "because")}
    return {**{key: text[key] for key in _SHOWN}, **said, "answer": facts.answer, "source": source}


def page() -> str:
    """Return the text of docs/lesson-scaling.md: the chapters, and what committed runs say of each."""
    parts = [TEXTS["intro"]]
    on_the_page = {each["name"]: each for each in chapters()}
    for number, text in enumerate(TEXTS["chapter"], 1):
        parts.append(f"## {number}. {text['title']}")
        if said := on_the_page.get(text["name"]):
            right = said["choices"][said["answer"]]
            answer = f"**{right}** ({said['source']}; `{said['command']}`). {said['because']}"
            parts += [said["idea"], f"**Guess.** {said['ask']} *{' · '.join(said['choices'])}*"]
            parts.append(f"<details><summary>Answer</summary>\n\n{answer}\n\n</details>")
            parts.append(said["after"])
        parts.append(text["here"].format_map(HERE[text["name"]]()))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def predicted(command: str) -> Run:
    """Return the run of a command of `collbench step` that measures nothing."""
    _, _, name, *words = command.split()
    sessions = {"scale": step.scale_session, "overlap": step.overlap_session}
    with tempfile.TemporaryDirectory() as folder:
        context = step.command.commands[name].make_context(name, [*words, "--out", f"{folder}/run"])
        with sessions[name](made(step.StepRequest, context.params)) as session:
            list(session.run())
        return read(Path(folder, "run"))


def _speed_up(run: Run, text: Part) -> Facts:
    """Return what a scaling says of its most ranks."""
    curve = curves(run.results)[0]
    point = curve.last
    row = point.row
    parts = {"computing": row.computing(), "waiting": row.waiting(), "exposed": row.exposed()}
    numbers = {part: f"{seconds / sum(parts.values()):.0%}" for part, seconds in parts.items()} | {
        "system": run.header.topology.name.split(",")[0],
        "ranks": str(point.ranks),
        "compute": format_seconds(curve.base.row.computing()),
        "size": format_size(row.case.nbytes),
        "speedup": f"{curve.speedup(point).value:,.0f} times",
        "efficiency": f"{point.efficiency.value:.0%}",
    }
    choices = [float(choice.rstrip("%")) / 100 for choice in text["choices"]]
    return Facts(numbers, nearest(point.efficiency.value, choices))


def _overlap(run: Run, text: Part) -> Facts:
    """Return what the fastest step with overlap says."""
    known = [each for each in overlaps(run.results) if math.isfinite(each.hidden.value)]
    best = min(known, key=lambda each: each.row.typical)
    hidden = min(1.0, max(0.0, best.hidden.value))
    numbers = {
        "system": run.header.topology.name.split(",")[0],
        "ranks": str(best.row.case.ranks),
        "compute": format_seconds(best.sequential.computing()),
        "communicate": format_seconds(best.sequential.exposed()),
        "sequential": format_seconds(best.sequential.typical),
        "bucket": format_size(best.step.bucket),
        "step": format_seconds(best.row.typical),
        "hidden": f"{hidden:.0%}",
        "exposed": format_seconds(best.exposed.value),
    }
    return Facts(numbers, nearest(hidden, text["shares"]))


def _asynchronous(run: Run, text: Part) -> Facts:
    """Return who of ring and asynchronous reaches the loss first."""
    ranked = ranking(run.results)
    assert ranked
    entries = {entry.name: entry for entry in ranked.entries}
    names = [choice.partition(",")[0] for choice in text["choices"]]
    case = next(iter(entries[names[0]].runs.values())).case
    seconds = {name: entries[name].mean(Effort.SECONDS).value for name in names}
    slowed = max((factor for _, factor in case.job.slow), default=1) if case.job else 1
    numbers = {name: format_seconds(took) for name, took in seconds.items()}
    numbers |= {f"{name}-steps": f"{entries[name].mean(Effort.STEPS).value:.0f}" for name in names}
    numbers |= {"ranks": str(case.ranks), "factor": f"{slowed:g}", "target": f"{ranked.target:g}"}
    return Facts(numbers, names.index(min(seconds, key=seconds.__getitem__)))


FACTS: Mapping[str, Callable[[Run, Part], Facts]] = {
    "speed-up": _speed_up,
    "overlap": _overlap,
    "asynchronous": _asynchronous,
}
"""What says the numbers of a chapter, by its name."""


# ---- what committed runs say, for docs/lesson-scaling.md


def _results(name: str) -> list[Result]:
    return list(read(ROOT / "results" / name).results)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(heads)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def scaling() -> Mapping[str, str]:
    """Return all points of a scaling as a table, speed-ups by mode, name and ranks, and what ranks cost that spin."""
    facts, rows = {}, []
    for curve in curves(_results("cpu-4-ranks-scale")):
        for point in curve.more:
            row, base = point.row, curve.base.row
            key = f"{curve.mode} {row.implementation} {point.ranks}"
            facts[key] = curve.speedup(point).text(unit="x")
            facts[f"{key} slower"] = ratio(row.computing() / base.computing() / share_of(base, row))
            seconds = (row.computing(), row.waiting(), row.exposed())
            shares = [f"{part / sum(seconds):.0%}" for part in seconds]
            rows.append((*key.split(), format_seconds(row.typical), facts[key], *shares))
    facts["table"] = _table(("scaling", "by", "ranks", "step", "speed-up", "computing", "waiting", "exposed"), rows)
    facts["busy"] = Numbers.of(_results("cpu-4-ranks-busy")).value("ring-flags / mpi at 8 B")
    facts["yield"] = Numbers.of(_results("cpu-4-ranks-yield")).value("ring-flags at 8 B")
    return facts


def overlapping() -> Mapping[str, str]:
    """Return the fastest bucket of every schedule as a table, and the bound of MPI's."""
    best = {}
    for overlap in sorted(overlaps(_results("cpu-2-ranks-overlap")), key=lambda overlap: -overlap.row.typical):
        best[overlap.row.implementation, overlap.step.schedule] = overlap
    rows = []
    for (name, schedule), overlap in sorted(best.items()):
        times = map(format_seconds, (overlap.row.typical, overlap.exposed.value, overlap.sequential.typical))
        ratios = overlap.gain.text(unit="x"), overlap.slowdown.text(unit="x")
        rows.append((name, schedule, format_size(overlap.step.bucket), *times, *ratios))
    heads = "by", "schedule", "bucket", "step", "exposed", "one after the other", "gain", "computing as long as"
    thread = best["mpi", "thread"]
    return {
        "table": _table(heads, rows),
        "bound": format_seconds(thread.bound),
        "sequential": format_seconds(thread.sequential.typical),
    }


def narrower() -> Mapping[str, str]:
    """Return a sweep of narrower wires as a table, and from which size on each pays."""
    facts, rows = {}, []
    for wire in tradeoffs(_results("cpu-2-ranks-narrow")):
        assert wire.study
        errors = [f"{error:.2g}" for error in (wire.study.plain.rms, wire.study.plain.bias, wire.study.fed.bias)]
        gains = [f"{wire.gain(others):.2f}x" for others in (wire.libraries, wire.exact)]
        rows.append((wire.name, f"{wire.nbytes:.3g}", *gains, *errors))
        facts |= {f"{wire.name} {what}": error for what, error in zip(("RMS", "bias", "fed"), errors, strict=True)}
        for over, others in (("library", wire.libraries), ("exact", wire.exact)):
            size = wire.pays_from(others)
            facts[f"{wire.name} over {over}"] = "never" if size is None else f"from {format_size(size)}"
        facts["size"] = format_size(wire.case.nbytes)
    heads = "wire", "bytes an element", f"over `mpi`, {facts['size']}", f"over the best exact, {facts['size']}"
    facts["table"] = _table((*heads, "RMS", "bias", "bias fed"), rows)
    for machine, name in (("pcie", "pcie4-4090-p2p-narrow"), ("nvswitch", "dgx-h100-narrow")):
        numbers = Numbers.of(_results(name))
        for size in ("4 KiB", "1 GiB"):
            exact = "two-shot" if machine == "pcie" else "nccl"
            facts[f"{machine} {size}"] = numbers.value(f"{exact} / narrow-int8 at {size}")
    return facts


def slowest() -> Mapping[str, str]:
    """Return how often rank 1 is last, by how much, and what that costs, with it slowed and without."""
    facts = {}
    for kind, name in (("slowed", "cpu-2-ranks-jitter-slow"), ("even", "cpu-2-ranks-jitter")):
        for row, steps in straggler_rows(_results(name)):
            if row.implementation == "mpi":
                late = straggler_test([steps])[1].late.value * steps.median
                facts |= {f"{kind} last": f"{steps.last_share(1):.0%}", f"{kind} late": format_seconds(late)}
                facts[f"{kind} costs"] = f"{steps.cost(1):.0%}"
    return facts


def strategies(name: str) -> Ranking:
    """Return the ranking of a committed run of strategies."""
    ranked = ranking(_results(name))
    assert ranked
    return ranked


def slowed() -> Mapping[str, str]:
    """Return what a slow rank costs each strategy as a table, and the asynchronous one's effort over the ring's."""
    facts, rows = {}, []
    even, slow = strategies("cpu-2-ranks-styles-even"), strategies("cpu-2-ranks-styles")
    before = {entry.name: entry for entry in even.entries}
    after = {entry.name: entry for entry in slow.entries}
    for entry in slow.ranked(Effort.SECONDS):
        both = (before[entry.name], entry)
        left = f"{entry.rate.value / both[0].rate.value:.2f}x"
        seconds = [format_seconds(each.mean(Effort.SECONDS).value) for each in both]
        rows.append((f"`{entry.name}`", left, *seconds, *(f"{each.mean(Effort.STEPS).value:.0f}" for each in both)))
    heads = "style", "samples/s left", "to the loss", "with rank 1 slowed", "steps", "with rank 1 slowed"
    facts["table"] = _table(heads, rows)
    for key, entries, effort in (
        ("seconds", after, Effort.SECONDS),
        ("steps", after, Effort.STEPS),
        ("even seconds", before, Effort.SECONDS),
    ):
        over = entries["asynchronous"].ratio(entries["ring"], effort)
        assert over
        facts[key] = over.text("{:.2f}".format, "x")
    return facts


HERE: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "speed-up": scaling,
    "overlap": overlapping,
    "narrow": narrower,
    "slowest": slowest,
    "asynchronous": slowed,
}
"""What says the numbers of a chapter's text on committed runs, by its name."""
