"""Kernels broken on purpose, and the tools that notice: check, race detector, memory model.

assets/breaks.toml has the changes and the texts.  `python -m tools.pages breaks` writes the memory model's executions
into assets/breaks.json.
"""

import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec

from collbench.commands.exercise.judge import swept
from collbench.commands.lesson import asset, table
from collbench.commands.lesson.content import Litmus, Part
from collbench.errors import CollbenchError
from collbench.measure import races

TEXTS = table("breaks")
"""The experiments, and sentences by speaker and outcome."""
_SENTENCES = TEXTS["says"]
KEYS = {"experiment", "question", "checker", "races", "model", "litmus"}
"""Fields of each tried change."""
_SWEEP = ("-b", "4000", "-e", "4000", "-n", "3", "--timeout", "15")
_TRIES = 4  # runs with different stalls, before the race detector counts as silent
_FRAME = re.compile(r"#\d+ .+ (?:\S*/)?(?P<file>[\w.]+\.cuh?):(?P<line>\d+)")


Detection = tuple[bool | None, str]
"""Whether a tool noticed a mistake, None if it could not run; and its report."""


def experiments() -> Sequence[Part]:
    """Return the changes in the order of the chapter, as assets/breaks.toml has them."""
    changes: Sequence[Part] = TEXTS["break"]
    return changes


def witnesses() -> dict[str, Litmus]:
    """Return, by the name of a change, an execution that the memory model allows only with the change."""
    executions: dict[str, Litmus] = msgspec.json.decode(asset("breaks.json"))
    return executions


def changed(experiment: Part) -> dict[str, str]:
    """Return the texts of the kernels' files with the change, by file."""
    return races.changed((_change(experiment),))


def _change(experiment: Part) -> races.Change:
    return experiment["file"], experiment["old"], experiment["new"]


def tried() -> tuple[Part, ...]:
    """Try all changes here, two at a time; return the outcomes of those that could be swept."""
    with ThreadPoolExecutor(2) as pool:
        pending = [(each, pool.submit(checked, each), pool.submit(detected, each)) for each in experiments()]
        seen = [(each, check.result(), detection.result()) for each, check, detection in pending]
    return tuple(_assembled(*each) for each in seen if each[1][0] is not None)


def checked(experiment: Part) -> Detection:
    """Run a sweep with the changed kernels, and return the outcome of its check."""
    with tempfile.TemporaryDirectory() as folder:
        file = experiment["file"]
        Path(folder, file).write_text(changed(experiment)[file], encoding="utf-8")
        ranks = ("--impl", experiment["rung"], "--ranks", str(experiment["ranks"]))
        results, complaint = swept(Path(folder), *ranks, *_SWEEP)
    result = next((each for each in results if each.implementation == experiment["rung"]), None)
    if result is None:
        return None, _SENTENCES["checker"]["untried"].format(words=complaint)
    kind = "wrong" if result.wrong else "ok"
    if result.reason:
        kind = "failed"
    words = _SENTENCES["checker"][kind].format(words=result.reason or result.wrong, ranks=experiment["ranks"])
    return kind != "ok", words


def detected(experiment: Part) -> Detection:
    """Run streams of calls of the changed kernel under ThreadSanitizer, and return the outcome."""
    run = races.Run((experiment["rung"],), experiment["ranks"], stall=experiment.get("stall", 0))
    try:
        races.launcher()
        binary = races.build(run.parts(), (_change(experiment),))
    except (races.NoSanitizer, CollbenchError) as reason:
        return None, _SENTENCES["races"]["untried"].format(words=str(reason).splitlines()[0])
    for seed in range(1, _TRIES + 1):
        outcome = races.outcome(binary, replace(run, seed=seed))
        if outcome.catchers:
            kind = "race" if outcome.races else "wrong" if outcome.wrong else "stuck"
            accesses = [_access(experiment, verb, stack) for both in outcome.sides[:1] for verb, _, stack in both]
            words = " and ".join(accesses) or outcome.summary.partition("\n")[0]
            return True, _SENTENCES["races"][kind].format(words=words)
    return False, _SENTENCES["races"]["clean"]


def _access(experiment: Part, kind: str, stack: str) -> str:
    texts, says = changed(experiment), _SENTENCES["access"]
    frame = next((match for match in _FRAME.finditer(stack) if match["file"] in texts), None)
    if frame is None:
        return str(says[f"caller-{kind}"])
    code = texts[frame["file"]].splitlines()[int(frame["line"]) - 1].strip()
    return str(says[kind].format(code=code, **frame.groupdict()))


def _assembled(experiment: Part, check: Detection, detection: Detection) -> Part:
    """Return the fields of KEYS for a change; the outcomes here answer its question."""
    says, alone = _SENTENCES["question"], detection[0] is None
    kinds = ("checker", "neither") if alone else ("both", "checker", "races", "neither")
    seen = [experiment.get("noticed" if check[0] else "missed", "")]
    seen += [experiment.get("detected", "")] if detection[0] else []
    question = {
        "name": f"who-{experiment['name']}",
        "ask": says["ask"].format(**experiment),
        "choices": [says[kind] for kind in kinds],
        "answer": int(not check[0]) if alone else 2 * (not check[0]) + (not detection[0]),
        "because": " ".join(words.strip() for words in (*seen, experiment["because"]) if words),
        "source": says["alone" if alone else "source"].format(**experiment),
        "command": says["command"].format(**experiment),
    }
    litmus = witnesses()[experiment["name"]]
    verdicts = {"checker": check[1], "races": detection[1], "model": _SENTENCES["model"].format(**litmus)}
    return {"experiment": experiment, "question": question, **verdicts, "litmus": litmus}
