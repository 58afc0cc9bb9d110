"""docs/lesson.md and docs/lesson-scaling.md, from the texts of `collbench lesson` and the committed runs.

Numbers are links to their runs; tools/lesson.py updates them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from collbench.commands.lesson import breaks, numbers, screens
from collbench.commands.lesson.content import Code, Content, Part
from collbench.commands.lesson.screens import Voice
from collbench.results import PARTS
from collbench.runfile.store import read
from collbench.units import format_rate, format_seconds
from tools import ROOT

TIMED, EXPLAINED = "cpu-2-ranks", "cpu-2-ranks-explained"
PICTURES = {  # by the screen that they follow
    "ring-host": f"![Time of every rung by size](../results/{TIMED}/latency.png)",
    "ring-flags": f"![What each rank of `ring-flags` did in 8 B](../results/{EXPLAINED}/"
    "timeline-allreduce-float-sum-8B-ring-flags.png)",
    "two-shot": f"![What each rank of `ring-flags` did in 128 MiB](../results/{EXPLAINED}/"
    "timeline-allreduce-float-sum-134217728B-ring-flags.png)\n"
    f"![What each rank of `two-shot` did in 128 MiB](../results/{EXPLAINED}/"
    "timeline-allreduce-float-sum-134217728B-two-shot.png)",
}

STEPS = {
    "cpu-4-ranks-scale": "a step on one, two and four ranks",
    "cpu-2-ranks-overlap": "every way to overlap; none certainly gains",
    "cpu-2-ranks-narrow": "narrower wires: their times and their errors",
    "cpu-2-ranks-jitter-slow": "the last rank of each step, with 50 % more work for rank 1",
    "cpu-2-ranks-jitter": "the same with equal work; no rank is accused",
    "cpu-2-ranks-styles": "strategies, with four times the work for rank 1",
    "cpu-2-ranks-styles-even": "the same with equal work",
}
"""The committed runs of training steps, with a description of each."""


class Linked(Voice):
    """Writes numbers as links to their runs."""

    def value(self, title: str) -> str:
        """Return the text for a title: a link for a number, a word for the name of an implementation."""
        said, (kind, _, rest) = super().value(title), title.partition(":")
        place, _, there = rest.partition(":")
        if kind == "m" and (run := numbers.places()[place].run):
            return f'[{said}](../{run} "{there}")'
        words = {*self.facts, *self.numbers.names}
        if title in words or title.startswith(("p:", "m:", "best at")):
            return said
        name, at, size = title.partition(" at ")
        title = f"{self.numbers.names.get(name, name)}{at}{size}"
        run = EXPLAINED if title.partition(" of ")[0] in PARTS else TIMED
        return f'[{said}](../results/{run} "{title}")'


def content() -> Content:
    runs = [read(ROOT / "results" / name) for name in (TIMED, EXPLAINED)]
    return screens.content(runs, voice=Linked)


def written() -> Iterator[tuple[Path, str]]:
    """Yield both pages and their texts."""
    lines = "\n\n".join(_parts(content())).splitlines()
    yield ROOT / "docs" / "lesson.md", "\n".join(line.rstrip() for line in lines) + "\n"
    yield ROOT / "docs" / "lesson-scaling.md", scaling_page()


def scaling_page() -> str:
    """Return the text of docs/lesson-scaling.md: the chapters on training steps, and their runs."""
    parts = [
        "# The second lesson: what more ranks bring",
        "This lesson is about training on more GPUs. The [first lesson](lesson.md) explains one all-reduce. Here "
        "ranks compute and add up their gradients, which is a [step](steps.md). `collbench lesson` ends with the same "
        "chapters. Guess before you open an answer.",
    ]
    for number, chapter in enumerate(content().chapters, 1):
        parts += [f"## {number}. {chapter['title']}\n\n{chapter['idea']}", _question(chapter)]
        parts += [f"`{chapter['command']}`", chapter["after"]]
    runs = "\n".join(f"* [{run}](../results/{run}): {shows}" for run, shows in STEPS.items())
    parts.append(f"## Measured on two cores\n\n`collbench report results/RUN` shows all of a run.\n\n{runs}")
    return "\n\n".join(parts) + "\n"


def _parts(lesson: Content) -> Iterator[str]:
    yield f"# {lesson.title}"
    yield (
        "`collbench lesson` writes this page with the numbers of *your* machine, with animations and with kernels that "
        "it breaks on purpose. On this page, each number is a link to its committed run."
    )
    yield lesson.intro
    yield f"## One formula\n\n{lesson.formula}"
    yield "**time = steps x latency + bytes / bandwidth + the rest**"
    yield (
        f"On these two cores a step takes {format_seconds(lesson.measured.latency)} and a link carries "
        f"{format_rate(lesson.measured.bandwidth)} GB/s."
    )
    yield "## Guess first"
    yield from (_question(question) for question in lesson.questions)
    for number, screen in enumerate(lesson.screens, 1):
        yield from _screen(number, screen)
    yield f"## The answer\n\n{lesson.here}"
    yield "## Why hand-written loses"
    yield "\n".join(_reason(reason) for reason in lesson.losing)
    yield "## When it wins"
    yield "\n".join(_reason(reason) for reason in lesson.winning)
    yield "\n".join(_broken())
    yield f"## Cheat sheet\n\n{lesson.sheet}"
    yield _end(lesson)


def _question(question: Part) -> str:
    choices = question["choices"]
    right = question.get("right", choices[question["answer"]])
    answer = f"**{right}** ({question['source']}). {question['because']}"
    guess = f"**Guess:** {question['ask']} *{' · '.join(choices)}*"
    return f"{guess}\n\n<details><summary>Answer</summary>\n\n{answer}\n\n</details>"


def _screen(number: int, screen: Part) -> Iterator[str]:
    name, title = screen["name"], screen["title"]
    yield f"## {number}. {name}: {title[0].lower()}{title[1:]}\n\n{screen['idea']}"
    yield "\n".join(_code(screen["before"], screen["code"], screen["unchanged"]))
    if name in PICTURES:
        yield PICTURES[name]
    yield _question(screen)
    yield screen["after"]


def _code(before: Sequence[Code], now: Sequence[Code], unchanged: set[str]) -> Iterator[str]:
    """Yield the code, as a diff if it replaces other code."""
    yield "```diff" if before else "```python" if now[0].file.endswith(".py") else "```c++"
    for parts, mark in ((before, "- "), (now, "+ " if before else "")):
        file = ""
        for code in parts:
            if code.file != file:
                yield f"{'  ' if before else ''}{'#' if code.file.endswith('.py') else '//'} {code.file}"
            file = code.file
            yield from ("  " * bool(mark) + line if line.strip() in unchanged else mark + line for line in code.lines)
    yield "```"


def _reason(reason: Part) -> str:
    return "* **{title}.** {text} *{number}* ({source})".format(**reason)


def _broken() -> Iterator[str]:
    yield (
        "## Break it\n\n`collbench lesson` tries each change on your machine, and reports whether the check of a sweep "
        "and a race detector notice it. The memory model of PTX allows each wrong result:\n"
    )
    for experiment in breaks.experiments():
        steps = breaks.witnesses()[experiment["name"]]["steps"]
        wrong = next(step["words"] for step in steps if step["wrong"])
        change = experiment["change"]
        yield f"* **{experiment['title']}.** {change[0].upper()}{change[1:]} {wrong}"


def _end(lesson: Content) -> str:
    places = dict.fromkeys(where for _, where in lesson.sources)
    sources = "\n".join(f"* {where}" for where in places)
    return (
        "## Now you\n\n`collbench exercise` has ten puzzles: kernels with a hole, and a judge that names the first "
        "wrong element and catches races.\n\n[Why the kernels are right](kernels.md) · "
        "[what textbooks count](model.md#what-textbooks-count) · [when hand-written kernels win on "
        "GPUs](model.md#when-hand-written-kernels-win) · [which "
        "MPI](measuring.md#which-mpi) · [the second lesson: training steps](lesson-scaling.md)"
        f"\n\n## Sources\n\n{sources}"
    )
