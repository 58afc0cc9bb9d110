"""From runs to what a lesson says: its texts (assets/lesson.toml) with the numbers, code and traces at hand."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from collbench.algorithms import implementations, is_library
from collbench.errors import UsageError
from collbench.lesson import asset, elsewhere, table
from collbench.lesson.content import Break, Chapter, Code, Content, Formula, Reason, Screen
from collbench.lesson.numbers import Numbers, titles
from collbench.lesson.sentences import Teller, Voice
from collbench.lesson.traces import trace
from collbench.platforms.compiler import own_folder
from collbench.results.base import Timed
from collbench.results.collectives import PHASES
from collbench.runfile.store import Run

_LARGE = 2**21  # bytes of the larger formula of a screen, where the implementation does that much
_TRACED = 2**11  # bytes of the operation that is shown moment by moment, or the size nearest to that
MEASURE = "run collbench lesson without a run, which measures, or collbench sweep"

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


def screen(teller: Teller, text: Mapping[str, Any], constants: tuple[float, float] | None) -> Screen:
    """Return the screen of a rung; without the terms of the formula where its constants are not known here."""
    name, shown, here = text["name"], code(text["code"]), teller.voices[0].numbers
    explained = {nbytes: row for (rung, nbytes), row in here.explained.items() if rung == name}
    traces = [trace(explained[size], lit(shown, text["lit"])) for size in sorted(explained, key=_from_traced)]
    number, number_says, _ = teller.number(text["number"], text["number_says"])
    question, beside = teller.question(name, text)
    return Screen(
        name=name,
        title=text["title"],
        idea=teller.text(text["idea"]),
        number=number,
        number_says=number_says,
        command=text["command"],
        after=beside.text(text["after"], question.answer),
        code=shown,
        before=code(text.get("before", ())),
        question=question,
        formulas=tuple(formulas(here, name, constants)) if constants else (),
        trace=next(filter(None, traces), None),
    )


def _from_traced(nbytes: int) -> float:
    """Return how far a size is from the one that is shown moment by moment."""
    return abs(nbytes - _TRACED)


# ---- the whole ----


def content(runs: Sequence[Run], breaks: tuple[Break, ...] = (), voice: type[Voice] = Voice) -> Content:
    """Return a lesson from runs that were measured or explained, and from what was broken.

    Rows that were disturbed teach nothing: their numbers are those of the committed run, and say so.

    Args:
        runs: Of sweep and explain.
        breaks: What breaking kernels showed.
        voice: Fills numbers of the runs into texts: docs/lesson.md links each to its run.

    Raises:
        UsageError: No run has an all-reduce with a time.

    """
    results, texts = [result for run in runs for result in run.results], table("lesson")
    here = Numbers.of(results)
    first = next((run for run in runs if _has_times(Numbers.of(run.results))), None)
    if not first:
        raise UsageError(f"{', '.join(str(run.path) for run in runs)}: no all-reduce that was measured; {MEASURE}")
    topology, committed = first.header.topology, elsewhere.places()[elsewhere.COMMITTED]
    ranks = next(result.case.ranks for result in first.results)
    facts = {"machine": topology.name, "ranks": str(ranks), "here": "here", "Here": "Here"}
    teller = Teller.of(voice(here, facts))
    constants = None
    with suppress(KeyError):
        constants = elsewhere.constants(here)
    libraries = (row.label for row in results if isinstance(row, Timed) and is_library(row.implementation))
    return Content(
        title=texts["title"],
        intro=teller.text(texts["intro"]),
        machine=topology.name,
        ranks=ranks,
        library=next(libraries, "none"),
        latency=constants[0] if constants else committed.latency,
        bandwidth=constants[1] if constants else committed.bandwidth,
        constants_of="here" if constants else f"on {committed.name}",
        curves=here.curves(),
        places=tuple(elsewhere.places().values()),
        questions=tuple(teller.question(each["name"], each)[0] for each in texts["question"]),
        screens=tuple(screen(teller, each, constants) for each in texts["screen"]),
        losing=tuple(_reasons(teller, texts["losing"])),
        winning=tuple(_reasons(teller, texts["winning"])),
        breaks=breaks,
        chapters=msgspec.json.decode(asset("chapters.json"), type=tuple[Chapter, ...]),
        sources=tuple(_sources(texts)),
        figures=_figures(first) if here.timed else {},
        formula=teller.text(texts["formula"]),
        here="\n\n".join(filter(None, map(teller.text, texts["here"]))),
        training=teller.text(texts["training"]["idea"]),
        runs=(first,) if here.timed else (),
        caution=_caution(sum(result.disturbed for result in results), len(results), committed.name),
    )


def _has_times(numbers: Numbers) -> bool:
    return bool(numbers.timed or numbers.disturbed)


def _caution(disturbed: int, rows: int, place: str) -> str:
    """Return what the reader should know of disturbed rows; nothing where there are none."""
    if not disturbed:
        return ""
    return (
        f"{disturbed} of {rows} rows were disturbed by other programs, and this page uses none of them. A number that "
        f"they would give is of {place}, and says so. Close other programs, then: collbench lesson --fresh"
    )


def _reasons(teller: Teller, texts: Iterable[Mapping[str, Any]]) -> Iterator[Reason]:
    for each in texts:
        number, says, source = teller.number(each["number"], each["says"])
        yield Reason(
            each["name"],
            each["title"],
            teller.text(each["text"]),
            f"{number} {says}".strip(),
            each.get("source", source),
        )


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
