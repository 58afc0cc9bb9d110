"""Breaks kernels on purpose, and asks who notices: the check of a sweep, the race detector, the memory model.

assets/breaks.toml has the changes and the words, assets/breaks.json what the memory model says, which
`python -m tools.breaks` writes.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from collbench.errors import CollbenchError
from collbench.lesson import races
from collbench.lesson.content import Break, Litmus, Question
from collbench.runfile.store import NAME, read

ASSETS = Path(__file__).with_name("assets")
TEXTS = tomllib.loads((ASSETS / "breaks.toml").read_text(encoding="utf-8"))
"""The experiments, and sentences by who says them and what was seen."""
_SAYS = TEXTS["says"]
_SWEEP = ("-b", "4000", "-e", "4000", "-n", "3", "--timeout", "15", "--no-plot")
_TRIES = 4  # with other stalls, before the race detector is said to see nothing
_ACCESS = re.compile(r"^  (?:Previous )?(?:atomic )?(read|write) of size .*\n((?:    #\d.*\n)+)", re.M | re.I)
_FRAME = re.compile(r"#\d+ .+ (?:\S*/)?(?P<file>[\w.]+\.cuh?):(?P<line>\d+)")


@dataclass(frozen=True)
class Experiment:
    """A change of a kernel, with the implementation and ranks to try it with."""

    name: str
    title: str
    text: str
    change: str  # in a sentence
    file: str
    old: str
    new: str
    rung: str
    ranks: int
    because: str
    stall: int = 0  # where a thread pauses for long, under the race detector


@dataclass(frozen=True)
class Verdict:
    """What the memory model says of a change."""

    model: str
    litmus: Litmus


@dataclass(frozen=True)
class Heard:
    """What was said here, and whether it is that something is wrong; None where nobody could be asked."""

    noticed: bool | None
    words: str


def experiments() -> tuple[Experiment, ...]:
    """Return the changes in the order of the chapter."""
    return msgspec.convert(TEXTS["break"], tuple[Experiment, ...])


def verdicts() -> dict[str, Verdict]:
    """Return what the memory model says, by the names of the changes."""
    return msgspec.json.decode((ASSETS / "breaks.json").read_bytes(), type=dict[str, Verdict])


def tried(progress: Callable[[str], object]) -> tuple[Break, ...]:
    """Try all changes here, two at a time, and return who noticed; *progress* gets the title of each that is done."""
    with ThreadPoolExecutor(2) as pool:
        heard = [(each, pool.submit(checked, each), pool.submit(detected, each)) for each in experiments()]
        breaks = []
        for experiment, check, detection in heard:
            breaks.append(_told(experiment, check.result(), detection.result(), verdicts()[experiment.name]))
            progress(experiment.title)
    return tuple(breaks)


def checked(experiment: Experiment) -> Heard:
    """Run a sweep with the changed kernels, and return what its check says."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        Path(folder, experiment.file).write_text(_changed(experiment)[experiment.file], encoding="utf-8")
        what = ("--impl", experiment.rung, "--ranks", str(experiment.ranks), "--out", str(out))
        command = [sys.executable, "-m", "collbench", "sweep", *what, *_SWEEP]
        environment = os.environ | {"COLLBENCH_KERNELS": folder}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        results = read(out).results if (out / NAME).exists() else ()
    result = next((each for each in results if each.implementation == experiment.rung), None)
    if result is None:
        words = (done.stderr.strip() or "the sweep has no result").splitlines()[-1]
        return Heard(None, _SAYS["checker"]["untried"].format(words=words))
    kind = "failed" if result.reason else "wrong" if result.wrong else "ok"
    words = _SAYS["checker"][kind].format(words=result.reason or result.wrong, ranks=experiment.ranks)
    return Heard(kind != "ok", words)


def detected(experiment: Experiment) -> Heard:
    """Run the changed kernel as streams of calls under ThreadSanitizer, and return what that says."""
    run = races.Run((experiment.rung,), experiment.ranks, stall=experiment.stall, patience=1000)
    try:
        races.launcher()
        binary = races.build(run.parts(), ((experiment.file, experiment.old, experiment.new),))
    except (races.NoSanitizer, CollbenchError) as reason:
        return Heard(None, _SAYS["races"]["untried"].format(words=str(reason).splitlines()[0]))
    for seed in range(1, _TRIES + 1):
        found = races.outcome(binary, replace(run, seed=seed))
        if found.catchers:
            kind = "race" if found.races else "wrong" if found.wrong else "stuck"
            accesses = [_access(experiment, *match.groups()) for match in _ACCESS.finditer(found.said)]
            words = " and ".join(accesses[:2]) or found.summary.partition("\n")[0]
            return Heard(True, _SAYS["races"][kind].format(words=words))
    return Heard(False, _SAYS["races"]["clean"])


def _access(experiment: Experiment, kind: str, stack: str) -> str:
    """Which code reads or writes, by the first line of a kernel in the detector's report."""
    frames = (match for match in _FRAME.finditer(stack) if match["file"] in _changed(experiment))
    if (frame := next(frames, None)) is None:
        return str(_SAYS["access"][f"caller-{kind.lower()}"])
    code = _changed(experiment)[frame["file"]].splitlines()[int(frame["line"]) - 1].strip()
    return str(_SAYS["access"][kind.lower()].format(code=code, **frame.groupdict()))


def _changed(experiment: Experiment) -> dict[str, str]:
    return races.changed(((experiment.file, experiment.old, experiment.new),))


def _told(experiment: Experiment, check: Heard, detection: Heard, verdict: Verdict) -> Break:
    """What is known of a change, with a question that is answered by what was seen here."""
    lonely = detection.noticed is None
    says = _SAYS["alone" if lonely else "question"]
    kinds = ("checker", "neither") if lonely else ("both", "checker", "races", "neither")
    noticed = {(True, True): "both", (True, False): "checker", (False, True): "races", (False, False): "neither"}
    answer = kinds.index(noticed[bool(check.noticed), bool(detection.noticed)])
    ask, source = (says[words].format(**vars(experiment)) for words in ("ask", "source"))
    choices = tuple(says[kind] for kind in kinds)
    question = Question(f"break-{experiment.name}", ask, choices, answer, experiment.because.strip(), source)
    old, new = (tuple(text.splitlines()) for text in (experiment.old, experiment.new))
    about = (experiment.name, experiment.title, experiment.text.strip(), f"kernels/{experiment.file}", old, new)
    return Break(*about, check.words, detection.words, verdict.model, verdict.litmus, question)
