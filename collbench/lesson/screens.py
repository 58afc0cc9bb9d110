"""From runs to what a lesson says: its texts (assets/lesson.toml) with the numbers, code and traces at hand."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from collbench.algorithms import implementations
from collbench.errors import UsageError
from collbench.lesson import asset, elsewhere, table
from collbench.lesson.content import HERE, Break, Chapter, Code, Content, Formula, Question, Reason, Screen
from collbench.lesson.numbers import NUMBER, Numbers, filled, nearest, titles
from collbench.lesson.traces import trace
from collbench.measure.disturbance import disturbed_in_words
from collbench.platforms.compiler import own_folder
from collbench.results.collectives import PHASES
from collbench.runfile.store import Run
from collbench.units import parse_size

_LARGE = 2**21  # bytes of the larger formula of a screen, where the implementation does that much
_TRACED = 2**11  # bytes of the operation that is shown moment by moment, or the size nearest to that
MEASURE = "run collbench lesson without a run, which measures, or collbench sweep"
COUNTED, ELSEWHERE = "counted", "measured on two cores of an Intel Xeon"
"""Where answers come from that no run decides: the algorithm, and a machine that had what these runs lack."""


@dataclass(frozen=True)
class Renderer:
    """Fills the numbers of runs, of the model and of others into texts."""

    here: Numbers
    facts: Mapping[str, str]  # machine and ranks

    def value(self, title: str) -> str:
        """Return what stands for a title in braces; KeyError if nothing is known of it."""
        kind, _, rest = title.partition(":")
        if kind == "p":
            return elsewhere.published()[rest].value
        if kind == "m":
            place, _, rest = rest.partition(":")
            return elsewhere.numbers(place).value(rest)
        return self.facts[title] if title in self.facts else self.here.value(title)

    def text(self, text: str) -> str:
        """Return a text with its numbers."""
        return filled(text.strip(), self.value)

    def question(self, name: str, text: Mapping[str, Any]) -> Question:
        """Return a question with its answer, which may be computed."""
        index, source = self.answer(text["answer"], text["choices"])
        choices, because = tuple(text["choices"]), self.text(text["because"])
        return Question(name, self.text(text["ask"]), choices, index, because, source, text.get("command", ""))

    def answer(self, answer: Any, choices: Sequence[str]) -> tuple[int, str]:
        """Return the index of the right choice, and where that is known from."""
        if isinstance(answer, int):
            return answer, COUNTED
        place = answer.get("place", "here")
        numbers = self.here if place == "here" else elsewhere.numbers(place)
        try:
            index = _right(answer, choices, numbers)
        except KeyError:
            return answer["seen"], ELSEWHERE
        return index, HERE if place == "here" else elsewhere.places()[place].source


def _right(answer: Mapping[str, Any], choices: Sequence[str], known: Numbers) -> int:
    """Return the index of the choice that these numbers make the right one; KeyError where they lack what it takes."""
    if "fastest" in answer:
        nbytes, times = parse_size(answer["fastest"]), {}
        for index, name in enumerate(choices):
            times[known.seconds(name, nbytes)] = index
        return times[min(times)]
    if "above" in answer:
        return int(known.figure(answer["ratio"]) > answer["above"])
    found, unit = known.figure(answer["nearest"]), 100 if choices[0].endswith("%") else 1
    numbers = answer.get("of") or [float(NUMBER.findall(choice)[0]) / unit for choice in choices]
    return nearest(found, numbers)


# ---- the parts of a screen ----


def code(excerpts: Iterable[Mapping[str, Any]]) -> tuple[Code, ...]:
    """Return lines of the package's files: so many, from the first that holds a text."""
    found = []
    for excerpt in excerpts:
        folder, _, rest = excerpt["file"].partition("/")
        path = own_folder() / rest if folder == "kernels" else Path(__file__).parents[2] / excerpt["file"]
        lines = path.read_text(encoding="utf-8").splitlines()
        first = next(number for number, line in enumerate(lines) if excerpt["from"] in line)
        found.append(Code(excerpt["file"], first + 1, tuple(lines[first : first + excerpt["lines"]])))
    return tuple(found)


def lit(shown: Iterable[Code], words: Mapping[str, Sequence[str]]) -> dict[str, tuple[int, ...]]:
    """Return by phase the lines that run in it, counted over all excerpts: those that hold one of its texts."""
    lines = [line for part in shown for line in part.lines]
    return {
        phase: tuple(number for number, line in enumerate(lines) if any(text in line for text in words[phase]))
        for phase in PHASES
        if phase in words
    }


def formulas(here: Numbers, name: str, constants: tuple[float, float]) -> Iterator[Formula]:
    """Yield the terms of an implementation at the smallest size, and at the largest up to 2 MiB."""
    sizes = [nbytes for rung, nbytes in sorted(here.timed) if rung == name and nbytes <= _LARGE]
    cost = implementations()[name].cost
    for nbytes in dict.fromkeys([*sizes[:1], *sizes[-1:]] if cost else ()):
        row = here.timed[name, nbytes]
        assert cost
        counts = cost(row.case)
        yield Formula(nbytes, row.case.ranks, counts.steps, counts.link * nbytes, *constants, row.typical)


def screen(renderer: Renderer, text: Mapping[str, Any], constants: tuple[float, float]) -> Screen:
    """Return the screen of a rung."""
    name, shown = text["name"], code(text["code"])
    explained = {nbytes: row for (rung, nbytes), row in renderer.here.explained.items() if rung == name}
    traces = [trace(explained[size], lit(shown, text["lit"])) for size in sorted(explained, key=_from_traced)]
    return Screen(
        **{
            key: renderer.text(text[key])
            for key in ("name", "title", "idea", "number", "number_says", "command", "after")
        },
        code=shown,
        question=renderer.question(name, text),
        formulas=tuple(formulas(renderer.here, name, constants)),
        trace=next(filter(None, traces), None),
    )


def _from_traced(nbytes: int) -> float:
    """Return how far a size is from the one that is shown moment by moment."""
    return abs(nbytes - _TRACED)


# ---- the whole ----


def content(runs: Sequence[Run], breaks: tuple[Break, ...] = (), rendering: type[Renderer] = Renderer) -> Content:
    """Return a lesson from runs that were measured or explained, and from what was broken.

    *rendering* fills numbers into texts: docs/lesson.md links each to its run.

    UsageError if no run has an all-reduce with a time.
    """
    here, texts = Numbers.of(result for run in runs for result in run.results), table("lesson")
    first = next((run for run in runs if Numbers.of(run.results).timed), None)
    if not first:
        raise UsageError(f"{', '.join(str(run.path) for run in runs)}: no all-reduce that was measured; {MEASURE}")
    row, constants = next(iter(here.timed.values())), elsewhere.constants(here)
    libraries = (found.label for (name, _), found in here.timed.items() if name == here.library)
    facts = {"machine": first.header.topology.name, "ranks": str(row.case.ranks)}
    renderer = rendering(here, facts)
    return Content(
        title=texts["title"],
        intro=renderer.text(texts["intro"]),
        machine=facts["machine"],
        ranks=row.case.ranks,
        library=next(libraries, "none"),
        latency=constants[0],
        bandwidth=constants[1],
        curves=here.curves(),
        places=tuple(elsewhere.places().values()),
        questions=tuple(renderer.question(each["name"], each) for each in texts["question"]),
        screens=tuple(screen(renderer, each, constants) for each in texts["screen"]),
        losing=tuple(_reasons(renderer, texts["losing"])),
        winning=tuple(_reasons(renderer, texts["winning"])),
        breaks=breaks,
        chapters=msgspec.json.decode(asset("chapters.json"), type=tuple[Chapter, ...]),
        sources=tuple(_sources(texts)),
        figures=_figures(first),
        formula=renderer.text(texts["formula"]),
        here=renderer.text(texts["here"]),
        training=renderer.text(texts["training"]["idea"]),
        runs=(first,),
        caution=disturbed_in_words(first.results),
    )


def _reasons(renderer: Renderer, texts: Iterable[Mapping[str, Any]]) -> Iterator[Reason]:
    for each in texts:
        number = renderer.text(f"{each['number']} {each['says']}")
        yield Reason(each["name"], each["title"], renderer.text(each["text"]), number, each["source"])


def _sources(texts: Any) -> Iterator[tuple[str, str]]:
    """Yield what was published, and where: of each number that the texts quote, and of the table."""
    yield "NCCL and the kernels of inference engines", elsewhere.published()["launch"].source
    for key in sorted({title[2:] for title in titles(str(texts)) if title.startswith("p:")}):
        quoted = elsewhere.published()[key]
        yield f"{quoted.value}: {quoted.what}", quoted.source


def _figures(run: Run) -> dict[str, str]:
    from collbench.plots import curves
    from collbench.plots.kinds import PlotRequest
    from collbench.plots.save import page_svg

    return {
        f"Measured here: {name} by message size": page_svg(figure)
        for name, figure in curves.figures([run], PlotRequest(("latency",)))
    }
