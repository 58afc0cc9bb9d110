"""Content and page of a lesson, from runs and the texts of assets/lesson.toml.

A text is a sentence or a list of sentences.  A sentence is a string, or a table with alternatives (`says`).  The first
bound of `up_to` that the `number` does not exceed chooses one, or the right choice of the question does.

Numbers come from the reader's runs.  The committed run replaces missing or disturbed ones, and the sentence says so.  A
sentence with an unknown number is left out.

The page is one HTML file that loads nothing: `lesson.html` is its layout, `lesson.css` its style, `lesson.js` its
script.  Without the script it is readable, but has no guesses.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import msgspec
from markupsafe import Markup

from collbench import __version__
from collbench.algorithms import implementations, is_library
from collbench.commands.lesson import asset, table
from collbench.commands.lesson.content import HERE, Code, Content, Event, Formula, LessonMachine, Part, Trace
from collbench.commands.lesson.numbers import (
    COMMITTED,
    EARLIER,
    Numbers,
    allreduce,
    constants_of,
    filled,
    fitted,
    judged,
    numbers_at,
    places,
    published,
    titles,
)
from collbench.commands.report.chart import data_block, for_dark
from collbench.errors import UsageError
from collbench.platforms.compiler import own_folder
from collbench.presence import PACKAGE
from collbench.present import page as pages
from collbench.present.figures import LOOKS, PHASES, phase_css
from collbench.results import Explanation
from collbench.results.base import Timed
from collbench.results.collectives import WAITED, Span, Track
from collbench.runfile.store import Run
from collbench.units import format_figure, format_list, format_seconds, format_size, parse_size

_LARGE = 2**21  # largest size of a screen's formulas, in bytes
_TRACED = 2**11  # bytes of the drawn operation; the nearest explained size is drawn
MEASURE = "run collbench lesson without a run, which measures, or collbench sweep"
_TIMES = {"once": 0, "ranks - 1": 1, "ranks - 2": 2}  # subtracted from the number of ranks
MOST_RANKS = 4  # rows that fit a drawing
PROTOCOLS = table("protocols")
"""The stages of each protocol, and under `rungs` the protocol of each implementation."""
Meaning = tuple[Span, Mapping[str, Any], int]
"""A span, its part of a protocol, and the number of earlier repetitions of that part."""
COUNTED = "counted"
"""Source of an answer that follows from the algorithm, not from a run."""
Text = str | Sequence[str | Mapping[str, Any]]

# ---- sentences ----


@dataclass(frozen=True)
class Voice:
    """Renders sentences with the numbers of one machine."""

    numbers: Numbers
    facts: Mapping[str, str]  # `here`, `Here`, machine and ranks
    source: str = HERE
    marked: bool = False  # whether a sentence with its numbers must name their source

    def value(self, title: str) -> str:
        """Return the value of a title in braces; KeyError if it is unknown."""
        kind, _, rest = title.partition(":")
        if kind == "p":
            return published()[rest]["value"]
        if kind == "m":
            place, _, rest = rest.partition(":")
            return numbers_at(place).value(rest)
        return {**self.facts, **self.numbers.names}.get(title) or self.numbers.value(title)

    def sentence(self, sentence: str | Mapping[str, Any], answer: int = 0) -> str:
        """Return a sentence for these numbers, or for the question's answer; KeyError if a number is missing."""
        decisive: list[str] = []
        if not isinstance(sentence, str):
            decisive = [sentence["number"]] if "number" in sentence else []
            index = bisect_left(sentence["up_to"], self.numbers.figure(decisive[0])) if decisive else answer
            sentence = str(sentence["says"][index])
        said = filled(sentence.strip(), self.value)
        needed = {title for title in (*titles(sentence), *decisive) if not title.startswith(("p:", "m:"))}
        marked = self.marked and said and needed - {*self.facts} and not needed & {"here", "Here"}
        return f"{said} ({self.source[0].upper()}{self.source[1:]}.)" if marked else said


Voices = Sequence[Voice]
"""Voices for a sentence; the reader's machine is the first."""


def voices_of(here: Voice) -> Voices:
    """Return the voice of the reader's machine, and that of the committed run for missing numbers."""
    place = places()[COMMITTED]
    where = f"{place.name} (committed run of {place.date})"
    facts = {"here": f"on {where}", "Here": f"On {where}", "ranks": str(place.ranks)}
    return here, Voice(numbers_at(COMMITTED), {**here.facts, **facts}, place.source, marked=True)


def rendered(voices: Voices, text: Text, answer: int = 0) -> str:
    """Return a text; the first voice that knows its numbers renders a sentence, unknown ones are left out."""
    sentences = []
    for sentence in [text] if isinstance(text, str) else text:
        for voice in voices:
            with suppress(KeyError):
                sentences.append(voice.sentence(sentence, answer))
                break
    return " ".join(filter(None, sentences))


def number(voices: Voices, text: Mapping[str, Any], says: str) -> tuple[str, str, str]:
    """Return the number of a text, its meaning (key *says*) and its source; KeyError if no voice knows both."""
    for voice in (replace(each, marked=False) for each in voices):
        with suppress(KeyError):
            figure, meaning = voice.sentence(text["number"]), rendered([voice], text[says])
            if meaning or not text[says]:
                return figure, meaning, voice.source
    raise KeyError(text["number"])


def question(voices: Voices, text: Part) -> tuple[Part, Voices]:
    """Return a question, and the voices for the text around it, from the answering voice on.

    KeyError if no run answers it.
    """
    for place, voice in enumerate(voices):
        with suppress(KeyError):
            choices, index, source, names = _answer(text["answer"], text["choices"], voice)
            first, *others = (replace(each, numbers=replace(each.numbers, names=names)) for each in voices[place:])
            answering = [replace(first, marked=False), *others]
            ask, because = rendered(answering[:1], text["ask"]), rendered(answering, text["because"], index)
            said = {"ask": ask, "choices": choices, "answer": index, "because": because, "source": source}
            said["right"] = _right(text["answer"], choices[index], voice)
            return {"command": "", **text, **said}, answering
    raise KeyError(text["name"])


def _answer(answer: Any, choices: Sequence[str], voice: Voice) -> tuple[tuple[str, ...], int, str, Mapping[str, str]]:
    """Return the choices, the index of the right one, its source, and names; KeyError if the answer is unknown.

    The names `right` and `second` are those of the fastest choice and the next one.
    """
    if isinstance(answer, int):
        return tuple(choices), answer, COUNTED, {}
    place = answer.get("place")
    numbers = numbers_at(place) if place else voice.numbers
    source = places()[place].source if place else voice.source
    if "fastest" in answer:
        nbytes = parse_size(answer["fastest"])
        first, second = sorted(choices, key=lambda name: numbers.seconds(name, nbytes))[:2]
        return tuple(choices), choices.index(first), source, {"right": first, "second": second}
    if "above" in answer:
        return tuple(choices), int(numbers.figure(answer["ratio"]) > answer["above"]), source, {}
    return *fitted(numbers.figure(answer["nearest"]), choices), source, {}


def _right(answer: Any, choice: str, voice: Voice) -> str:
    """Return the right choice, behind the number that it is nearest to unless they are the same."""
    if isinstance(answer, int) or "nearest" not in answer:
        return choice
    number = voice.value(f"m:{answer['place']}:{answer['nearest']}" if "place" in answer else answer["nearest"])
    return number if f"[{choice}]" in f"[{number}]".replace(".0x", "x") else f"{number}; the nearest choice is {choice}"


# ---- the parts of a screen ----


def code(excerpts: Iterable[Mapping[str, Any]]) -> tuple[Code, ...]:
    """Return excerpts of the package's files: `lines` lines from the first that holds `from`."""
    parts = []
    for excerpt in excerpts:
        folder, _, rest = excerpt["file"].partition("/")
        path = own_folder() / rest if folder == "kernels" else PACKAGE.parent / excerpt["file"]
        lines = path.read_text(encoding="utf-8").splitlines()
        first = next(number for number, line in enumerate(lines) if excerpt["from"] in line)
        parts.append(Code(excerpt["file"], first + 1, tuple(lines[first : first + excerpt["lines"]])))
    return tuple(parts)


def lit(shown: Iterable[Code], words: Mapping[str, Sequence[str]]) -> dict[str, tuple[int, ...]]:
    """Return the lines of each phase, those that hold one of its texts, counted over all excerpts."""
    lines = [line for part in shown for line in part.lines]
    by_phase = {}
    for phase, texts in words.items():
        by_phase[phase] = tuple(number for number, line in enumerate(lines) if any(text in line for text in texts))
    return by_phase


def formulas(here: Numbers, name: str, constants: tuple[float, float]) -> Iterator[Formula]:
    """Yield the formulas of an implementation at its smallest size, and at its largest up to 2 MiB."""
    sizes = [nbytes for rung, nbytes in sorted(here.timed) if rung == name and nbytes <= _LARGE]
    cost = implementations()[name].cost
    for nbytes in dict.fromkeys([*sizes[:1], *sizes[-1:]] if cost else ()):
        row = here.timed[name, nbytes]
        assert cost
        counts = cost(row.case)
        yield Formula(nbytes, counts.steps, counts.link * nbytes, *constants, row.typical)


def screen(voices: Voices, text: Mapping[str, Any], constants: tuple[float, float] | None) -> Part:
    """Return the screen of a rung; it has no formulas if `constants` is None."""
    name, shown, before, here = text["name"], code(text["code"]), code(text.get("before", ())), voices[0].numbers
    explained = {nbytes: row for (rung, nbytes), row in here.explained.items() if rung == name}
    sizes = sorted(explained, key=lambda nbytes: abs(nbytes - _TRACED))

    # Of the traces that fit a drawing, the one nearest to 2 KiB.
    traces = [trace(explained[size], lit(shown, text["lit"])) for size in sizes]
    figure, number_says, _ = number(voices, text, "number_says")
    asked, answering = question(voices, text)
    return {
        **asked,
        "idea": rendered(voices, text["idea"]),
        "number": figure,
        "number_says": number_says,
        "after": rendered(answering, text["after"], asked["answer"]),
        "code": shown,
        "before": before,
        "unchanged": unchanged(before, shown),
        "formulas": tuple(formulas(here, name, constants)) if constants else (),
        "trace": next(filter(None, traces), None),
    }


def unchanged(before: Iterable[Code], now: Iterable[Code]) -> set[str]:
    """Return the lines, without indentation, that both codes have."""
    stripped = []
    for parts in (before, now):
        stripped.append({line.strip() for part in parts for line in part.lines})
    return stripped[0] & stripped[1]


# ---- the whole ----


def content(runs: Sequence[Run], breaks: tuple[Part, ...] = (), voice: type[Voice] = Voice) -> Content:
    """Return a lesson from runs of sweep and explain, and from the outcomes of broken kernels.

    *voice* fills numbers of the runs into texts: docs/lesson.md links each to its run.

    UsageError if no run has an all-reduce with a time.
    """
    runs = [replace(run, results=tuple(judged(run.results))) for run in runs]
    results, texts = [result for run in runs for result in run.results], table("lesson")
    here, known = Numbers.of(results), [(run, Numbers.of(run.results)) for run in runs]
    first = next((run for run, numbers in known if numbers.timed or numbers.disturbed), None)
    if not first:
        raise UsageError(f"{', '.join(str(run.path) for run in runs)}: no measured all-reduce; {MEASURE}")
    machine, committed = first.header.topology.name, places()[COMMITTED]
    ranks = first.results[0].case.ranks
    voices = voices_of(voice(here, {"machine": machine, "ranks": str(ranks), "here": "here", "Here": "Here"}))
    constants = constants_of(here)
    latency, bandwidth = constants or (committed.latency, committed.bandwidth)
    name = "this machine" if constants else f"this machine, step and link as on {committed.name}"
    disturbed, measured = sum(result.disturbed for result in results), sum(not result.problem for result in results)

    # Warn of disturbed rows and of rungs that were not measured.
    cautions = [texts["caution"].format(disturbed, measured, committed.name)] if disturbed else []
    platform, timed = first.header.topology.platform, {name for name, _ in (*here.timed, *here.disturbed)}
    rungs = [each["name"] for each in texts["screen"] if platform in implementations()[each["name"]].platforms]
    if lacking := [name for name in rungs if name not in timed]:
        cautions.append(texts["lacking"].format(format_list(lacking), committed.name))
    libraries = (row.label for row in results if isinstance(row, Timed) and is_library(row.implementation))
    return Content(
        title=texts["title"],
        intro=rendered(voices, texts["intro"]),
        machine=machine,
        measured=LessonMachine(name, HERE, ranks, latency, bandwidth, next(libraries, "none"), here.curves()),
        constants_of=voices[0 if constants else 1].facts["here"],
        places=tuple(place for name, place in places().items() if name != EARLIER),
        questions=tuple(question(voices, each)[0] for each in texts["question"]),
        screens=tuple(screen(voices, each, constants) for each in texts["screen"]),
        losing=tuple(_reasons(voices, texts["losing"])),
        winning=tuple(_reasons(voices, texts["winning"])),
        breaks=breaks,
        chapters=msgspec.json.decode(asset("chapters.json"), type=tuple[dict[str, Any], ...]),
        sources=tuple(_sources(texts)),
        figures=_figures(first) if here.timed else {},
        formula=rendered(voices, texts["formula"]),
        here="\n\n".join(rendered(voices, text) for text in texts["here"]),
        sheet="\n".join(_sheet([replace(each, source="committed run") for each in voices], texts)),
        training=rendered(voices, texts["training"]["idea"]),
        caution=" ".join(cautions),
    )


def _reasons(voices: Voices, texts: Iterable[Mapping[str, Any]]) -> Iterator[Part]:
    for each in texts:
        figure, says, source = number(voices, each, "says")
        text, words = rendered(voices, each["text"]), f"{figure} {says}".strip()
        yield {"source": source, **each, "text": text, "number": words}


def _sheet(voices: Voices, texts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the cheat sheet: a text, and a table with a row for each rung."""
    yield rendered(voices, texts["sheet"]["idea"])
    for rung in texts["screen"]:
        name, (waits, moved, use) = rung["name"], rung["sheet"]
        numbers = (rendered(voices, cell.replace("{}", name)) for cell in texts["sheet"]["cells"])
        yield f"| {' | '.join((f'`{name}`', waits, moved, *numbers, use))} |"


def _sources(texts: Any) -> Iterator[tuple[str, str]]:
    yield "NCCL and the kernels of inference engines", published()["launch"]["source"]
    for key in sorted({title[2:] for title in titles(str(texts)) if title.startswith("p:")}):
        quoted = published()[key]
        yield f"{quoted['value']}: {quoted['what']}", quoted["source"]


def _figures(run: Run) -> dict[str, str]:
    from collbench.plots import curves
    from collbench.plots.kinds import PlotRequest
    from collbench.present.figures import page_svg

    return {
        f"Measured here: {name} by message size": page_svg(figure)
        for name, figure in curves.figures([run], PlotRequest(("latency",)))
    }


# ---- traces ----


def trace(explanation: Explanation, lit: Mapping[str, tuple[int, ...]]) -> Trace | None:
    """Return the events of an operation, with their lines of code; None without tracks, or for many ranks."""
    case, tracks = explanation.case, {track.rank: track for track in reversed(explanation.tracks)}  # of first blocks
    if not tracks or case.ranks > MOST_RANKS:
        return None
    events: list[Event] = []
    for rank in sorted(tracks):
        events += _events(explanation.implementation, tracks[rank], case.ranks, lit)
    seconds, traced = explanation.seconds, explanation.traced
    return Trace(explanation.implementation, case.nbytes, case.ranks, seconds, traced, tuple(events))


def _events(name: str, track: Track, ranks: int, lit: Mapping[str, tuple[int, ...]]) -> Iterator[Event]:
    rank, protocol = track.rank, PROTOCOLS["rungs"].get(name)
    named: dict[str, tuple[int, ...]] = {"next": ((rank + 1) % ranks,), "previous": ((rank - 1) % ranks,)}
    named["others"] = tuple(other for other in range(ranks) if other != rank)
    words = {who: format_list(others) for who, others in named.items()}
    for span, part, before in meanings(track.spans, PROTOCOLS[protocol] if protocol else (), rank, ranks):
        chunk = chunk_of(part, before, rank, ranks)
        sources, targets = (_joined(named, part.get(way, ())) for way in ("from", "to"))
        says, lines = part["says"].format(**words, chunk=chunk), lit.get(span.phase, ())
        yield Event(rank, span.phase, track.start + span.start, span.seconds, says, sources, targets, chunk, lines)


def chunk_of(part: Mapping[str, Any], before: int, rank: int, ranks: int) -> int | None:
    """Return the chunk of a protocol's part after `before` repetitions; None if it has none."""
    return (rank + part["chunk"] - before) % ranks if "chunk" in part else None


def _joined(named: Mapping[str, tuple[int, ...]], words: Sequence[str]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(rank for word in words for rank in named[word]))


def meanings(spans: Sequence[Span], stages: Sequence[Mapping[str, Any]], rank: int, ranks: int) -> list[Meaning]:
    """Return each span with its part of the protocol, or with its phase alone if the spans do not fit."""
    fitting = _fitted(list(spans), stages, rank, ranks)
    if len(fitting) == len(spans):
        return fitting
    return [(span, {"says": PROTOCOLS["unknown"][span.phase]}, 0) for span in spans]


def _fitted(left: list[Span], stages: Sequence[Mapping[str, Any]], rank: int, ranks: int) -> list[Meaning]:
    """Return the meanings of the first spans, as far as they follow the stages."""
    fitting: list[Meaning] = []
    for part, spins, before in _expected(stages, rank, ranks):
        if not left or left[0].phase != part["phase"]:
            break
        fitting.append((left.pop(0), part, before))

        # A rank without data waits in between, any number of times.
        while spins and len(left) > 1 and left[0].phase == WAITED and left[1].phase == part["phase"]:
            fitting += [(left.pop(0), spins, before), (left.pop(0), part, before)]
    return fitting


def _expected(stages: Sequence[Mapping[str, Any]], rank: int, ranks: int) -> Iterator[tuple[Any, Any, int]]:
    """Yield a rank's parts in order, each with the wait that may interrupt it and its repetition."""
    for stage in stages:
        off = _TIMES[stage.get("times", "once")]
        if stage.get("only", "") == ("others" if rank == 0 else "first"):
            continue
        for before in range(ranks - off if off else 1):
            for part in stage["parts"]:
                yield part, stage.get("spins"), before


# ---- the page ----

DRAWN = {"ring": "ring-flags", "one-shot": "one-shot", "two-shot": "two-shot", "one-shot-ll": "one-shot-ll"}
"""Lines of the draggable figure, and the implementations that count their costs."""
FIRST_RANKS = 8  # of the figure; with 2, a ring, one-shot and two-shot would be one line
MOST_DRAGGED = 72  # ranks of the largest NVLink domain
_WORDS_A_MINUTE, _SITTING = 200, 8  # a slow reader's words of prose and code; minutes until a place to stop
_UNREAD = re.compile(r'<details class="(?:moments|wide)">.*?</details>|<[^>]+>', re.DOTALL)
DASHES = {"-": "", "--": "7 4", "-.": "8 3 2 3", ":": "2 3"}


def build(content: Content) -> str:
    """Return the lesson as the text of an HTML file, which depends on the content alone.

    Texts are Markdown without HTML and pictures, so nothing in them can load or run.
    """
    script = pages.asset("views.js") + asset("lesson.js")
    traces = {screen["name"]: screen["trace"] for screen in content.screens if screen["trace"]}

    # The templates escape texts; only these filters make elements of Markdown.
    environment = pages.templates("collbench.commands.lesson", "assets")
    environment.filters |= {
        "markdown": partial(_markdown, inline=False),
        "inline": partial(_markdown, inline=True),
        "size": format_size,
        "seconds": format_seconds,
        "rate": lambda rate: f"{format_figure(rate / 1e9)} GB/s",
        "badge": lambda source: "".join(filter(str.isalpha, source.partition(" ")[0].lower())) or "other",
    }
    page = environment.get_template("lesson.html").render(
        content=content,
        phases=sorted({event.phase for trace in traces.values() for event in trace.events}, key=[*PHASES].index),
        first_ranks=FIRST_RANKS,
        version=__version__,
        policy=pages.policy(script),
        style=Markup(pages.asset("colours.css") + asset("lesson.css") + _colours()),
        data=data_block(_data(content, traces)),
        script=Markup(script),
    )
    return _timed(page.lstrip())  # the template's macros leave empty lines


def _timed(page: str) -> str:
    """Return a page with the minutes of reading at the end of each chapter, and with places to stop."""
    head, start, body = page.partition("<header ")
    minutes = stopped = 0.0
    *chapters, end = re.split(r"(?=</(?:header|section)>)", body)
    spent = [len(_UNREAD.sub(" ", chapter).split()) / _WORDS_A_MINUTE for chapter in chapters]
    for place, here in enumerate(spent):
        minutes += here
        pause = "; a good place to stop" if minutes - stopped > _SITTING else ""
        stopped = minutes if pause else stopped
        note = f"{here:.0f} min to read, {minutes:.0f} of {sum(spent):.0f} min{pause}."
        chapters[place] += f'<p class="note minutes">{note}</p>'
    return "".join((head, start, *chapters, end))


def _data(content: Content, traces: Mapping[str, Trace]) -> Mapping[str, Any]:
    looks = {line: LOOKS[name] for line, name in DRAWN.items()}
    return {
        "places": [*map(asdict, (content.measured, *content.places))],
        "ranks": FIRST_RANKS,
        "counts": _counts(),
        "dashes": {line: DASHES.get(str(look.linestyle), "") for line, look in looks.items()},
        "traces": {name: asdict(trace) for name, trace in traces.items()},
    }


def _counts() -> Mapping[str, list[tuple[float, float]]]:
    """Return (steps, bytes through the busiest link per byte of the message) for 2, 3, ... ranks, by line."""
    counts: dict[str, list[tuple[float, float]]] = {line: [] for line in DRAWN}
    for line, name in DRAWN.items():
        cost = implementations()[name].cost
        assert cost
        for ranks in range(2, MOST_DRAGGED + 1):
            counted = cost(allreduce(1024, ranks))
            counts[line].append((counted.steps, round(counted.link, 6)))
    return counts


def _markdown(text: str, inline: bool) -> Markup:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["image", "html_block", "html_inline"])
    return Markup(parser.renderInline(text) if inline else parser.render(text))


def _colours() -> str:
    colours = {line: LOOKS[name].color for line, name in DRAWN.items()}
    rules = [f".line-{line} {{ --day: {colour}; --night: {for_dark(colour)}; }}" for line, colour in colours.items()]
    return "\n".join([phase_css(".part."), *rules])
