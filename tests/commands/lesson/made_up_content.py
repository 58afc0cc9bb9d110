"""A made-up lesson: its times and traces are those of committed runs, its words are few."""

from collections.abc import Iterator
from functools import cache

from collbench.algorithms import implementations
from collbench.commands.lesson.content import (
    HERE,
    MODEL,
    PUBLISHED,
    Break,
    Chapter,
    Code,
    Content,
    Event,
    Experiment,
    Formula,
    Litmus,
    Place,
    Question,
    Screen,
    Trace,
)
from collbench.results import Explanation, Measurement
from collbench.results.collectives import PUBLISHED as FLAGGED
from collbench.results.collectives import WAITED, Track
from collbench.runfile.store import read
from tests.conftest import ROOT

FILES = {
    "ring-host": "collbench/algorithms/ring_host.py",
    "ring-events": "collbench/algorithms/ring_host.py",
    "ring-ll": "kernels/ring_ll.cu",
    "one-shot": "kernels/direct.cu",
    "one-shot-ll": "kernels/one_shot_ll.cu",
    "two-shot": "kernels/direct.cu",
    "nvls": "kernels/multimem.cu",
}
LADDER = ("ring-host", "ring-events", "ring-flags", "ring-pipelined", "ring-ll", "one-shot", "one-shot-ll", "two-shot")
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 160"><path d="M20 140 380 20" stroke="#000000"/></svg>'


def question(name: str, ask: str = "Which is the fastest at 8 B?", source: str = HERE) -> Question:
    """A guess whose second choice is right."""
    choices = ("the library", "`ring-flags`", "`one-shot-ll`")
    return Question(name, ask, choices, 1, "It has the **fewest** steps.", source, "collbench sweep -b 8 -e 8")


def events(tracks: tuple[Track, ...]) -> Iterator[Event]:
    """What a track of two ranks says, as far as a ring's protocol is known."""
    for track in tracks:
        other, pieces = 1 - track.rank, 0
        for span in track.spans:
            waits, flags = span.phase == WAITED, span.phase == FLAGGED
            chunk = None if waits or flags else (track.rank - pieces) % 2
            takes, sends = waits or (chunk is not None and pieces > 0), flags or (chunk is not None and pieces < 2)
            pieces += chunk is not None
            words = f"waits for rank {other}" if waits else f"{span.phase} chunk {chunk}"
            words = f"raises a flag of rank {other}" if flags else words
            start, lines = track.start + span.start, (2 * len(span.phase) % 9, 1)
            sources, targets = (other,) * takes, (other,) * sends
            yield Event(track.rank, span.phase, start, span.seconds, words, sources, targets, chunk, lines)


def code(name: str) -> tuple[Code, ...]:
    """Lines of the file that the implementation is in."""
    file = FILES.get(name, "kernels/ring.cu")
    lines = (ROOT / file).read_text().splitlines()
    return (Code(file, 41, tuple(lines[40:51])), Code(file, 61, tuple(lines[60:64])))


@cache
def curves() -> dict[str, dict[int, float]]:
    """Seconds by implementation and size."""
    found: dict[str, dict[int, float]] = {}
    for row in read(ROOT / "results" / "cpu-2-ranks").results:
        if isinstance(row, Measurement) and row.case.collective.name == "allreduce":
            found.setdefault(row.implementation, {})[row.case.nbytes] = row.typical
    return found


def formula(name: str, nbytes: int) -> Formula:
    """Of two ranks."""
    steps, link = (1, 2.0) if name == "one-shot-ll" else (2, 1.0)
    return Formula(nbytes, steps, link * nbytes, 144e-9, 5.4e9, curves()[name][nbytes])


def screen(name: str) -> Screen:
    """A rung with the trace of 2 KiB where there is any."""
    traces = {
        row.implementation: Trace(name, 2048, 2, row.seconds, row.traced, tuple(events(row.tracks)))
        for row in read(ROOT / "results" / "cpu-2-ranks-explained").results
        if isinstance(row, Explanation) and row.case.nbytes == 2048 and row.tracks
    }
    formulas = tuple(formula(name, size) for size in (8, 2**21) if size in curves().get(name, ()))
    says = "An idea in a sentence or two, with `code`, and **the point** of it. It is about as long as a paragraph is."
    idea = f"{implementations()[name].summary.capitalize()}. {says}"
    parts = ("27x", "as long as `ring-flags` at 8 B", "collbench explain")
    asked, before = question(f"about-{name}"), code("ring-flags") if name != "ring-host" else ()
    said = (name, f"About {name}", idea, *parts, code(name), asked, "After.")
    return Screen(*said, formulas, traces.get(name), before)


def litmus() -> Litmus:
    """Message passing without order."""
    threads = (("rank 0", ("st data, 1", "st.relaxed flag, 1")), ("rank 1", ("ld.relaxed flag", "ld data")))
    steps = (
        (0, 1, "rank 0 writes the flag: 1", False),
        (1, 0, "rank 1 reads the flag: 1", False),
        (1, 1, "rank 1 reads the data: 0", True),
        (0, 0, "rank 0 writes the data: 1, too late", False),
    )
    moments = [dict(zip(("thread", "instruction", "words", "wrong"), step, strict=True)) for step in steps]
    return {"threads": threads, "steps": moments, "outcome": "the flag is 1 and the data are 0"}


def broken(name: str) -> Break:
    """A change that breaks a kernel."""
    experiment = Experiment(
        name,
        title="Weaken a fence",
        text="The flag is stored without a fence.",
        change="the store is relaxed.",
        file="flags.cuh",
        old="  store_release(flag, number);",
        new="  store_relaxed(flag, number);",
        rung="ring-flags",
        ranks=2,
        because="Nothing orders the two.",
    )
    said = ("0 of 20 runs wrong", "a race: rank 1 reads what rank 0 writes", question(f"about-{name}"))
    return Break(experiment, *said, "allowed: the flag may overtake the data", litmus())


def content() -> Content:
    """A whole lesson."""
    keys = ("name", "title", "text", "number", "source")
    waits = ("host", "The host synchronises", "A step costs a launch, a copy and a **wait**.", "27x", HERE)
    launches = ("launches", "Launches", "A launch takes long.", "2.5 us", f"{PUBLISHED}: a paper")
    reasons = tuple(dict(zip(keys, words, strict=True)) for words in (waits, launches))
    chapter = Chapter(
        *("speed-up", "Speed-up", "Twice the ranks.", question("speed-up", source=f"{MODEL}: DGX H100")),
        "**Bytes** count.",
    )
    h100 = {size: 5e-6 + size / 370e9 for size in curves()["mpi"]}
    place = Place("8 H100, in a graph", f"{MODEL}: dgx-h100", 8, 1e-6, 370e9, "nccl", {"nccl": h100})
    return Content(
        title="Why hand-written synchronisation loses, and when it wins",
        intro="All ranks have an array, and all want the **sum**.\n\nGuess first.",
        machine="2 virtual cores of an Intel Xeon",
        measured=Place("this machine", HERE, 2, 144e-9, 5.4e9, "mpi: MPICH", curves()),
        places=(place,),
        questions=(question("wins-here"), question("wins-graph", "And in a graph?", f"{PUBLISHED}: vLLM")),
        screens=tuple(screen(name) for name in LADDER),
        losing=reasons,
        winning=reasons[:1],
        breaks=(broken("fence"),),
        chapters=(chapter,),
        sources=(("vLLM", "[pull request 8558](https://github.com/vllm-project/vllm/pull/8558)"),),
        formula="A message takes time even if it is empty: the **latency**.",
        here="Careful: on a CPU nearly every rung wins.",
        training="A step computes, and adds gradients up.",
        figures={"Time by message size": SVG},
    )
