"""The lesson of committed runs with few words: guesses, reasons, a broken kernel and a chapter are made up."""

from dataclasses import replace
from functools import cache

from collbench.commands.lesson import screens
from collbench.commands.lesson.content import HERE, MODEL, PUBLISHED, Content, LessonMachine, Litmus, Part
from collbench.runfile.store import read
from tests.conftest import ROOT

LADDER = ("ring-host", "ring-events", "ring-flags", "ring-pipelined", "ring-ll", "one-shot", "one-shot-ll", "two-shot")
PICTURE = "data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22 viewBox=%220 0 400 160%22/%3E"


def question(name: str, ask: str = "Which is the fastest at 8 B?", source: str = HERE) -> Part:
    return {
        "name": name,
        "ask": ask,
        "choices": ("the library", "`ring-flags`", "`one-shot-ll`"),
        "answer": 1,
        "right": "27x; the nearest choice is ring-flags",
        "because": "It has the **fewest** steps.",
        "source": source,
        "command": "collbench sweep -b 8 -e 8",
    }


def litmus() -> Litmus:
    threads = (("rank 0", ("st data, 1", "st.relaxed flag, 1")), ("rank 1", ("ld.relaxed flag", "ld data")))
    steps = (
        (0, 1, "rank 0 writes the flag: 1", False),
        (1, 0, "rank 1 reads the flag: 1", False),
        (1, 1, "rank 1 reads the data: 0", True),
        (0, 0, "rank 0 writes the data: 1, too late", False),
    )
    moments = [dict(zip(("thread", "instruction", "words", "wrong"), step, strict=True)) for step in steps]
    return {"threads": threads, "steps": moments, "outcome": "the flag is 1 and the data are 0"}


def broken(name: str) -> Part:
    experiment = {
        "name": name,
        "title": "Weaken a fence",
        "text": "The flag is stored without a fence.",
        "file": "flags.cuh",
        "old": "  store_release(flag, number);",
        "new": "  store_relaxed(flag, number);",
    }
    return {
        "experiment": experiment,
        "checker": "0 of 20 runs wrong",
        "races": "a race: rank 1 reads what rank 0 writes",
        "question": question(f"about-{name}"),
        "model": "allowed: the flag may overtake the data",
        "litmus": litmus(),
    }


@cache
def content() -> Content:
    real = screens.content([read(ROOT / "results" / name) for name in ("cpu-2-ranks", "cpu-2-ranks-explained")])
    rungs = []
    for screen in real.screens:
        if screen["name"] in LADDER:
            said = {"number": "27x", "number_says": "as long as `ring-flags` at 8 B", "after": "After."}
            rungs.append({**screen, **question(screen["name"]), **said})
    keys = ("name", "title", "text", "number", "source")
    waits = ("host", "The host synchronises", "A step costs a launch, a copy and a **wait**.", "27x", HERE)
    launches = ("launches", "Launches", "A launch takes long.", "2.5 us", f"{PUBLISHED}: a paper")
    reasons = tuple(dict(zip(keys, words, strict=True)) for words in (waits, launches))
    texts = {"title": "Speed-up", "idea": "Twice the ranks.", "after": "After."}
    h100 = {size: 5e-6 + size / 370e9 for size in real.measured.curves["mpi"]}
    return replace(
        real,
        places=(LessonMachine("8 H100, in a graph", f"{MODEL}: dgx-h100", 8, 1e-6, 370e9, "nccl", {"nccl": h100}),),
        questions=(question("wins-here"), question("wins-graph", "And in a graph?", f"{PUBLISHED}: vLLM")),
        screens=tuple(rungs),
        losing=reasons,
        winning=reasons[:1],
        breaks=(broken("fence"),),
        chapters=({**question("speed-up", source=f"{MODEL}: DGX H100"), **texts},),
        sources=(("vLLM", "[pull request 8558](https://github.com/vllm-project/vllm/pull/8558)"),),
        figures={"Time by message size": PICTURE},
    )
