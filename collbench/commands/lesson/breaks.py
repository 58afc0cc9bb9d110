"""Breaks kernels on purpose, and asks who notices: the check of a sweep, the race detector, the memory model.

assets/breaks.toml has the changes and the words, assets/breaks.json what the memory model says, which
`python -m tools.breaks` writes.
"""

import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec

from collbench.commands.exercise import races
from collbench.commands.exercise.judge import swept
from collbench.commands.lesson import asset, table
from collbench.commands.lesson.content import Break, Experiment, Litmus, Question
from collbench.errors import CollbenchError

TEXTS = table("breaks")
"""The experiments, and sentences by who says them and what was seen."""
_SENTENCES = TEXTS["says"]
_SWEEP = ("-b", "4000", "-e", "4000", "-n", "3", "--timeout", "15")
_TRIES = 4  # with other stalls, before the race detector is said to see nothing
_FRAME = re.compile(r"#\d+ .+ (?:\S*/)?(?P<file>[\w.]+\.cuh?):(?P<line>\d+)")


Detection = tuple[bool | None, str]
"""Whether a tool noticed that something is wrong, None where it could not run; and what it reported."""


def experiments() -> tuple[Experiment, ...]:
    """Return the changes in the order of the chapter."""
    return msgspec.convert(TEXTS["break"], tuple[Experiment, ...])


def witnesses() -> dict[str, Litmus]:
    """Return, by the name of a change, an execution that the memory model allows with it, and never without it."""
    found: dict[str, Litmus] = msgspec.json.decode(asset("breaks.json"))
    return found


def changed(experiment: Experiment) -> dict[str, str]:
    """Return the kernels' files with the change."""
    return races.changed(((experiment.file, experiment.old, experiment.new),))


def tried() -> tuple[Break, ...]:
    """Try all changes here, two at a time, and return who noticed, of those that a sweep could be tried with."""
    with ThreadPoolExecutor(2) as pool:
        pending = [(each, pool.submit(checked, each), pool.submit(detected, each)) for each in experiments()]
        seen = [(each, check.result(), detection.result()) for each, check, detection in pending]
    return tuple(_assembled(*each) for each in seen if each[1][0] is not None)


def checked(experiment: Experiment) -> Detection:
    """Run a sweep with the changed kernels, and return what its check says."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, experiment.file).write_text(changed(experiment)[experiment.file], encoding="utf-8")
        ranks = ("--impl", experiment.rung, "--ranks", str(experiment.ranks))
        found, complaint = swept(Path(folder), *ranks, *_SWEEP)
    result = next((each for each in found if each.implementation == experiment.rung), None)
    if result is None:
        return None, _SENTENCES["checker"]["untried"].format(words=complaint)
    kind = "failed" if result.reason else "wrong" if result.wrong else "ok"
    words = _SENTENCES["checker"][kind].format(words=result.reason or result.wrong, ranks=experiment.ranks)
    return kind != "ok", words


def detected(experiment: Experiment) -> Detection:
    """Run the changed kernel as streams of calls under ThreadSanitizer, and return what that says."""
    run = races.Run((experiment.rung,), experiment.ranks, stall=experiment.stall)
    try:
        races.launcher()
        binary = races.build(run.parts(), ((experiment.file, experiment.old, experiment.new),))
    except (races.NoSanitizer, CollbenchError) as reason:
        return None, _SENTENCES["races"]["untried"].format(words=str(reason).splitlines()[0])
    for seed in range(1, _TRIES + 1):
        found = races.outcome(binary, replace(run, seed=seed))
        if found.catchers:
            kind = "race" if found.races else "wrong" if found.wrong else "stuck"
            accesses = [_access(experiment, verb, stack) for both in found.sides[:1] for verb, _, stack in both]
            words = " and ".join(accesses) or found.summary.partition("\n")[0]
            return True, _SENTENCES["races"][kind].format(words=words)
    return False, _SENTENCES["races"]["clean"]


def _access(experiment: Experiment, kind: str, stack: str) -> str:
    """Return which code reads or writes, by the first line of a kernel in the detector's report."""
    texts, says = changed(experiment), _SENTENCES["access"]
    frame = next((match for match in _FRAME.finditer(stack) if match["file"] in texts), None)
    if frame is None:
        return str(says[f"caller-{kind}"])
    code = texts[frame["file"]].splitlines()[int(frame["line"]) - 1].strip()
    return str(says[kind].format(code=code, **frame.groupdict()))


def _assembled(experiment: Experiment, check: Detection, detection: Detection) -> Break:
    """Return what is known of a change, with a question that is answered by what was seen here."""
    says, alone = _SENTENCES["question"], detection[0] is None
    kinds = ("checker", "neither") if alone else ("both", "checker", "races", "neither")
    answer = int(not check[0]) if alone else 2 * (not check[0]) + (not detection[0])
    sentences = ("ask", "alone" if alone else "source", "command")
    ask, source, command = (says[name].format(**vars(experiment)) for name in sentences)
    seen = experiment.noticed if check[0] else experiment.missed, experiment.detected if detection[0] else ""
    because = " ".join(words.strip() for words in (*seen, experiment.because) if words)
    choices = tuple(says[kind] for kind in kinds)
    question = Question(f"who-{experiment.name}", ask, choices, answer, because, source, command)
    litmus = witnesses()[experiment.name]
    return Break(experiment, check[1], detection[1], question, _SENTENCES["model"].format(**litmus), litmus)
