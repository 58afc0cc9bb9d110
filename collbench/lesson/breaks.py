"""Breaks kernels on purpose, and asks who notices: the check of a sweep, the race detector, the memory model.

assets/breaks.toml has the changes and the words, assets/breaks.json what the memory model says; `python -m tools.breaks`
writes the latter.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from collbench.errors import CollbenchError
from collbench.lesson.content import Break, Litmus, Question
from collbench.results.collectives import Failed
from collbench.runfile.store import NAME, read
from collbench.units import format_seconds
from tools.kernels import streams as races

_ASSETS = Path(__file__).with_name("assets")
_TEXTS = tomllib.loads((_ASSETS / "breaks.toml").read_text(encoding="utf-8"))
SAYS: Mapping[str, Mapping[str, str]] = _TEXTS["says"]
"""Sentences by who says them and what was seen."""
VERDICTS = _ASSETS / "breaks.json"
"""What the memory model says, by the name of the experiment."""
_SWEEP = ("-b", "4000", "-e", "4000", "-n", "3", "--timeout", "15", "--no-plot")
_TRIES = 4  # with other stalls, before the race detector is said to see nothing
_ACCESS = re.compile(r"^  (?:Previous )?(?:atomic )?(read|write) of size .*\n((?:    #\d.*\n)+)", re.M | re.I)
_FRAME = re.compile(r"#\d+ (?P<function>.+) (?:\S*/)?(?P<file>[\w.]+):(?P<line>\d+)")


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
    variant: str  # of tools/memory_model/fragments.py
    because: str
    outcome: str = ""  # of the variant's wrong ones, those that the steps show; "" for all
    stall: int = 0  # where a thread pauses for long, under the race detector
    places: Mapping[str, str] = field(default_factory=dict)  # names of the variant's memory, in words


@dataclass(frozen=True)
class Verdict:
    """What the memory model says of a change."""

    model: str
    litmus: Litmus


@dataclass(frozen=True)
class Heard:
    """What a judge said here."""

    noticed: bool | None  # None: it could not be asked
    words: str


def experiments() -> tuple[Experiment, ...]:
    """Return the changes in the order of the chapter."""
    return tuple(msgspec.convert(each, Experiment) for each in _TEXTS["break"])


def tried(progress: Callable[[str], object]) -> tuple[Break, ...]:
    """Try every change here, two at a time, and return who noticed; *progress* gets the title of each that is done."""
    verdicts = msgspec.json.decode(VERDICTS.read_bytes(), type=dict[str, Verdict])
    with ThreadPoolExecutor(2) as pool:
        checks = [pool.submit(checked, each) for each in experiments()]
        detections = [pool.submit(detected, each) for each in experiments()]
        breaks = []
        for experiment, check, detection in zip(experiments(), checks, detections, strict=True):
            breaks.append(_told(experiment, check.result(), detection.result(), verdicts[experiment.name]))
            progress(experiment.title)
    return tuple(breaks)


def checked(experiment: Experiment) -> Heard:
    """Run a sweep with the changed kernels, and return what its check says."""
    said, facts = SAYS["checker"], {"ranks": experiment.ranks}
    with tempfile.TemporaryDirectory() as folder:
        kernels, out = Path(folder, "kernels"), Path(folder, "out")
        kernels.mkdir()
        (kernels / experiment.file).write_text(_changed(experiment), encoding="utf-8")
        what = ("--impl", experiment.rung, "--ranks", str(experiment.ranks), "--out", str(out))
        done = subprocess.run(
            [sys.executable, "-m", "collbench", "sweep", *what, *_SWEEP],
            env=os.environ | {"COLLBENCH_KERNELS": str(kernels)},
            capture_output=True,
            text=True,
            check=False,
        )
        results = read(out).results if (out / NAME).exists() else ()
    result = next((each for each in results if each.implementation == experiment.rung), None)
    if result is None:
        words = (done.stderr.strip() or done.stdout.strip() or "no result").splitlines()[-1]
        return Heard(None, said["untried"].format(words=words))
    if isinstance(result, Failed):
        return Heard(True, said["failed"].format(words=result.reason, **facts))
    words = result.wrong or f"at {format_seconds(result.typical)} a call"
    return Heard(bool(result.wrong), said["wrong" if result.wrong else "ok"].format(words=words, **facts))


def detected(experiment: Experiment) -> Heard:
    """Run the changed kernel as streams of calls under ThreadSanitizer, and return what that says."""
    said = SAYS["races"]
    run = races.Run((experiment.rung,), experiment.ranks, stall=experiment.stall, patience=1000)
    try:
        races.launcher()
        binary = races.build(run.parts(), ((experiment.file, experiment.old, experiment.new),))
    except (races.NoSanitizer, CollbenchError) as reason:
        return Heard(None, said["untried"].format(words=str(reason).splitlines()[0]))
    for seed in range(1, _TRIES + 1):
        found = races.outcome(binary, replace(run, seed=seed))
        if found.races:
            first, second = (_access(experiment, *match.groups()) for match in list(_ACCESS.finditer(found.said))[:2])
            return Heard(True, said["race"].format(first=first, second=second[0].upper() + second[1:]))
        if found.catchers:
            words = next((line for line in found.said.splitlines() if line.startswith("rank")), "")
            return Heard(True, said["wrong" if found.wrong else "stuck"].format(words=words))
    return Heard(False, said["clean"])


def _access(experiment: Experiment, kind: str, stack: str) -> str:
    """Which code reads or writes, by the first line of a kernel in the detector's report."""
    says, frames = SAYS["access"], [match.groupdict() for match in _FRAME.finditer(stack)]
    frame = next((frame for frame in frames if frame["file"].endswith(".cu")), None)
    if frame is None:
        return says["fill" if kind.lower() == "write" else "check"]
    texts = races.changed(((experiment.file, experiment.old, experiment.new),))
    code = texts[frame["file"]].splitlines()[int(frame["line"]) - 1].strip()
    return says["kernel"].format(does=says[kind.lower()], code=code, **frame)


def _changed(experiment: Experiment) -> str:
    return races.changed(((experiment.file, experiment.old, experiment.new),))[experiment.file]


def _told(experiment: Experiment, check: Heard, detection: Heard, verdict: Verdict) -> Break:
    """What is known of a change, with a question that is answered by what was seen here."""
    says = SAYS["question"]
    kinds = ("both", "checker", "races", "neither") if detection.noticed is not None else ("checker", "neither")
    noticed = {(True, True): "both", (True, False): "checker", (False, True): "races"}
    answer = noticed.get((bool(check.noticed), bool(detection.noticed)), "neither")
    question = Question(
        name=f"break-{experiment.name}",
        ask=says["ask"].format(**vars(experiment)),
        choices=tuple(says[kind] for kind in kinds),
        answer=kinds.index(answer),
        because=experiment.because.strip(),
        source=says["source" if detection.noticed is not None else "lonely"].format(**vars(experiment)),
    )
    return Break(
        name=experiment.name,
        title=experiment.title,
        text=experiment.text.strip(),
        file=f"kernels/{experiment.file}",
        old=tuple(experiment.old.splitlines()),
        new=tuple(experiment.new.splitlines()),
        checker=check.words,
        races=detection.words,
        model=verdict.model,
        litmus=verdict.litmus,
        question=question,
    )
