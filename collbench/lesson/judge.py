"""Judges an answer to an exercise: whether it builds, is right, has no races, and how fast it is.

A check goes by stages.  First all ranks meet before and after every call, so that only the call counts; then some come
late, some leave early, and at last nobody meets.  The first stage that fails is the last.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collbench import results
from collbench.errors import PlatformError, SourceError
from collbench.lesson import races
from collbench.lesson.exercises import Exercise, Mistake
from collbench.lesson.races import BARRIER, OWN, PACKETS, RECEIVE, START, Outcome, Run
from collbench.platforms.layout import awaited

_STAGES: Mapping[str, tuple[bool, bool]] = {  # whether ranks meet before each call, and after it
    "together": (True, True),
    "late": (False, True),
    "early": (True, False),
    "again": (False, False),
}
_PATIENCE = 1500  # milliseconds in which no thread takes a step, although it could
_COUNTS = (1003, 260, 701, 64, 37, 1003, 5, 701)
_ODD = ("together", "wrong"), ("late", "wrong")
_SAID = {
    "together": "Even when all ranks begin a call together and end it together, ",
    "late": "When a rank comes late to a call, ",
    "early": "When a rank leaves a call early and goes on with its next input, ",
    "again": "When calls follow each other and nobody waits in between, ",
}
_CAUGHT = {
    "crash": "the kernel touches memory that it must not touch.",
    "wrong": "the result is wrong.",
    "stuck": "some rank waits for ever.",
    "race": "two accesses to the same memory have no order: nothing makes the one wait for the other.",
}
_RIGHT = (results.Outcome.OK.value, results.Outcome.DISTURBED.value)  # disturbed: the time is not sure
_LEVEL = {"crash": "right", "wrong": "right", "stuck": "right", "race": "races"}
_VERBS = {"read": "reads", "write": "writes"}
_ACCESS = re.compile(r"^ +(?:Previous )?(?:atomic )?(read|write) of size \d+ at (0x[0-9a-f]+) by", re.MULTILINE | re.I)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Access:
    """One side of a race."""

    by: str  # kernel, or caller: who fills inputs and checks results
    verb: str  # reads, writes
    what: str  # input, result, flag, slot
    rank: int  # whose memory that is
    line: int = 0  # of the student's file; 0 outside of it

    def __str__(self) -> str:
        return f"{self.by} {self.verb} {self.what}"


@dataclass(frozen=True)
class Verdict:
    """What a check found; all is well without a `level`."""

    level: str = ""  # of the hint: builds, right, races, speed
    stage: str = ""
    caught: str = ""
    says: str = ""  # what goes wrong, in a sentence
    mistake: str = ""  # the mistake by its name, if it is a known one
    evidence: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what was not looked at
    table: tuple[Mapping[str, Any], ...] = ()  # of each size the seconds, by implementation

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.level


@dataclass
class _Answer:
    """A student's kernel, and what it is run with."""

    exercise: Exercise
    folder: Path
    text: str = ""
    notes: list[str] = field(default_factory=list)
    detector: bool = True
    binary: Path = Path()

    @property
    def file(self) -> Path:
        return self.folder / f"{self.exercise.kernel}.cu"

    def line(self, number: int) -> str:
        """A line as evidence."""
        lines = self.text.splitlines()
        code = lines[number - 1].strip() if 0 < number <= len(lines) else ""
        return f"{self.file.name}:{number}: {code}"


def judge(exercise: Exercise, folder: Path) -> Verdict:
    """Run the kernel in a student's folder through all stages, without timing it."""
    answer = _Answer(exercise, folder)
    try:
        answer.text = answer.file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{answer.file} cannot be read: {getattr(error, 'strerror', error)}") from None
    try:
        races.launcher()
    except races.NoSanitizer:
        answer.detector = False
        answer.notes.append(
            "Races were not looked for: the compiler here has no ThreadSanitizer (g++ and clang++ have)."
        )
    record = exercise.record
    kernel = races.Foreign(answer.file, exercise.kernel, record.collectives[0], record.arguments, record.in_place)
    try:
        answer.binary = races.build_foreign(kernel, answer.detector)
    except ValueError as error:
        return _unbuilt(answer, str(error))
    for stage in _STAGES:
        for ranks in exercise.ranks:
            outcomes = _outcomes(answer, stage, ranks)
            if any(outcome.catchers for outcome in outcomes):
                return _verdict(answer, stage, ranks, outcomes)
    return Verdict(notes=tuple(answer.notes))


def _unbuilt(answer: _Answer, said: str) -> Verdict:
    """What the compiler said of the student's file, in brief."""
    errors = re.findall(rf"^(?:\./)?{re.escape(answer.file.name)}:(\d+):.*?error: (.*)$", said, re.MULTILINE)
    if not errors and f" {answer.exercise.kernel}(" not in answer.text:
        errors = [("1", f"there is no kernel {answer.exercise.kernel} in this file")]
    if not errors:
        first = next((line for line in said.splitlines() if "error" in line), said.strip()[:200])
        raise PlatformError(f"{answer.file} could not be compiled: {first}")
    evidence = []
    for number, words in errors[:2]:
        evidence += [answer.line(int(number)), f"  {words}"]
    return Verdict("builds", caught="builds", says="The kernel does not compile.", evidence=tuple(evidence))


def _outcomes(answer: _Answer, stage: str, ranks: int) -> list[Outcome]:
    """Some runs of a stage, each with its own calls and stalls."""
    before, after = _STAGES[stage]
    stalls = (START, BARRIER) if stage != "again" else (START, BARRIER, RECEIVE, PACKETS)
    runs = [
        Run(
            (OWN,),
            ranks,
            calls=16,
            seed=seed,
            counts=_COUNTS,
            stall=stall,
            patience=_PATIENCE,
            careful=True,
            start=2**32 - 8 if stage == "again" else 0,
            before=before,
            after=after,
            node=answer.exercise.node,
            fifo=answer.exercise.record.fifo,
        )
        for seed, stall in enumerate(stalls, 1)
    ]
    prefix = races.launcher() if answer.detector else ()
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda run: races.outcome(answer.binary, run, prefix), runs))


# ---- what goes wrong, and which mistake that is ----


def _verdict(answer: _Answer, stage: str, ranks: int, outcomes: Sequence[Outcome]) -> Verdict:
    caught = {
        "crash": any(outcome.crashed for outcome in outcomes),
        "wrong": any(outcome.wrong for outcome in outcomes),
        "stuck": any(outcome.gave_up for outcome in outcomes),
        "race": any(outcome.races for outcome in outcomes),
    }
    seen = {name for name, found in caught.items() if found}
    wrong = _clearest([found for outcome in outcomes for found in outcome.found])
    both = [race for outcome in outcomes for race in _races(answer, outcome.said)]
    first = next(name for name in caught if name in seen)
    known = _named(answer, stage, ranks, seen, wrong, both)
    if known and known.caught in seen:
        first = known.caught
    evidence = {
        "crash": lambda: _of_crash(answer, next(outcome.said for outcome in outcomes if outcome.crashed)),
        "wrong": lambda: _of_wrong(ranks, wrong),
        "stuck": lambda: _of_stuck(ranks, next(outcome.waits for outcome in outcomes if outcome.gave_up)),
        "race": lambda: _of_race(answer, both, known.access if known else ""),
    }[first]()
    return Verdict(
        level=_LEVEL[first],
        stage=stage,
        caught=first,
        says=_SAID[stage] + _CAUGHT[first],
        mistake=known.says if known else "",
        evidence=tuple(evidence),
        notes=tuple(answer.notes),
    )


def _named(
    answer: _Answer,
    stage: str,
    ranks: int,
    seen: set[str],
    wrong: Mapping[str, Any],
    both: Sequence[tuple[Access, ...]],
) -> Mistake | None:
    """The first of the exercise's mistakes that all evidence fits."""
    code = _COMMENT.sub("", answer.text)

    def fits(mistake: Mistake) -> bool:
        tests = (
            mistake.stage in ("", stage),
            not mistake.caught or mistake.caught in seen,
            not mistake.ranks or mistake.ranks == ranks,
            mistake.value in ("", wrong.get("why")),
            mistake.where in ("", wrong.get("where")),
            mistake.calls in ("", "later" if wrong.get("call") else "first"),
            not mistake.who or _who(wrong, ranks) == mistake.who,
            mistake.order is None or mistake.order == (seen == {"race"}),
            not mistake.access or any(mistake.access in str(access) for race in both for access in race),
            not mistake.has or re.search(mistake.has, code, re.DOTALL),
            not mistake.lacks or not re.search(mistake.lacks, code, re.DOTALL),
        )
        return all(tests)

    return next((mistake for mistake in answer.exercise.mistake if fits(mistake)), None)


def _clearest(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The wrong result to speak of: of those that a chance cannot explain, the first."""
    return min(found, key=lambda each: (each["wrong"] < 8, each["call"]), default={})


def _who(wrong: Mapping[str, Any], ranks: int) -> str:
    """Whose inputs are missing or too many, seen from the rank with the result."""
    whose = wrong.get("ranks", [])
    places = [(rank - wrong["rank"]) % ranks for rank in whose]
    if len(places) > 1 and 0 not in places:
        return "others"
    return {0: "self", 1: "next", ranks - 1: "previous"}.get(places[0], "others") if len(places) == 1 else ""


def _of_wrong(ranks: int, wrong: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"With {ranks} ranks, in call {wrong['call'] + 1} with {wrong['count']} elements"
        f"{' in place' if wrong['in_place'] else ''}: element {wrong['index']} of rank {wrong['rank']} is "
        f"{wrong['got']:g}, and should be {wrong['wanted']:g}."
    )
    of, extra = _ranks(wrong["ranks"]), _ranks(wrong["extra"])
    why = {
        "untouched": "nobody wrote a result there",
        "missing": f"the input of {of} is missing" + (f", and that of {extra} is in it too often" if extra else ""),
        "twice": f"the input of {of} is in it more than once",
        "stale": f"the input of {of} is that of an earlier call",
        "ahead": f"the input of {of} is already that of the next call",
        "elsewhere": "what stands there belongs to another place of the array",
    }.get(wrong["why"])
    if why:
        yield f"All {wrong['wrong']} wrong elements of these {wrong['length']} say: {why}."


def _ranks(numbers: Sequence[int]) -> str:
    words = [f"rank {number}" for number in numbers]
    return " and of ".join(words)


def _of_stuck(ranks: int, waits: Sequence[int]) -> Iterator[str]:
    for rank, place in enumerate(waits):
        if place:
            yield f"With {ranks} ranks, rank {rank} waits for {awaited(place, rank, ranks)}."


def _of_crash(answer: _Answer, said: str) -> Iterator[str]:
    for number in re.findall(rf" {re.escape(answer.file.name)}:(\d+)", said)[:1]:
        yield answer.line(int(number))
    if (found := re.search(r"on unknown address (0x[0-9a-f]+)", said)) and int(found[1], 16) < 2**20:
        what = "an array of another node, which has no address here" if answer.exercise.node else "a null pointer"
        yield f"This reads or writes {what}."


def _of_race(answer: _Answer, both: Sequence[tuple[Access, ...]], access: str) -> Iterator[str]:
    fitting = [race for race in both if any(access in str(each) for each in race)]
    for each in (fitting or both or [()])[0]:
        whose = f"the {each.what} of rank {each.rank}" if each.rank >= 0 else each.what
        if each.by == "caller":
            doing = "fills in its next input" if each.verb == "writes" else "looks at its result"
            yield f"The caller of rank {each.rank} {doing}."
        else:
            yield f"The kernel {each.verb} {whose}:"
            yield f"  {answer.line(each.line)}" if each.line else "  in a function that was given"


def _races(answer: _Answer, said: str) -> Iterator[tuple[Access, ...]]:
    """The accesses of every race in a report of ThreadSanitizer."""
    places = [
        (int(words[k], 16), what, int(words[0]))
        for words in (line.split()[1:] for line in said.splitlines() if line.startswith("memory "))
        for k, what in ((1, "flag"), (2, "slot"), (3, "input"), (4, "result"))
    ]
    for report in said.split("=================="):
        if "data race" not in report:
            continue
        parts = _ACCESS.split(report)[1:]
        both = [_access(answer, places, *parts[k : k + 3]) for k in range(0, len(parts), 3)]
        if any(str(access) == "caller writes input" for access in both):  # in place, that is where results go
            both = [replace(access, what="input") for access in both]
        yield tuple(both)


def _access(answer: _Answer, places: Sequence[tuple[int, str, int]], verb: str, address: str, stack: str) -> Access:
    _, what, rank = max(
        ((base, what, rank) for base, what, rank in places if base <= int(address, 16)), default=(0, "memory", -1)
    )
    stack = stack.partition("\n\n")[0]
    line = re.search(rf" {re.escape(answer.file.name)}:(\d+)", stack)
    by, doing = "kernel", _VERBS[verb.lower()]
    if "Rank::launch" not in stack:
        by, what = "caller", "result" if doing == "reads" or "std::fill" in stack else "input"
    return Access(by, doing, what, rank, int(line[1]) if line else 0)


# ---- how fast it is ----


def timed(exercise: Exercise, folder: Path, budget: float = 0.5) -> Verdict:
    """Measure a right answer against the library and its rung, in a process of its own."""
    names = ("mpi", exercise.rung, exercise.kernel)
    table = []
    for size in exercise.sizes:
        with tempfile.TemporaryDirectory() as scratch:
            report = Path(scratch, "run.json")
            words = ["-m", "collbench", "sweep", "--on", "cpu", "--op", exercise.record.collectives[0], "--impl"]
            words += [",".join(names), "-b", size, "-e", size, "--budget", str(budget), "--starts", "1", "--no-plot"]
            done = subprocess.run(
                [sys.executable, *words, "--out", str(Path(scratch, "run")), "--json", str(report)],
                env=os.environ | {"COLLBENCH_KERNELS": str(folder.absolute())},
                capture_output=True,
                text=True,
                check=False,
            )
            if not report.is_file():
                raise PlatformError(f"the sweep of {size} failed: {done.stderr.strip().splitlines()[-1:]}")
            rows = {row["implementation"]: row for row in json.loads(report.read_text())["results"]}
        mine = rows.get(exercise.kernel, {})
        if mine.get("outcome") not in _RIGHT:
            why = f"{mine.get('outcome', 'no result')}: {mine.get('reason', '')}"
            says = "Where it was timed, with optimisation and in a process for each rank, the kernel failed."
            return Verdict("right", "timed", "wrong", says, evidence=(f"At {size}: {why}",))
        table.append({"size": size} | {name: rows[name]["seconds"] for name in names if name in rows})
    if exercise.beats and not any(row[exercise.kernel] < row["mpi"] for row in table):
        says = "The kernel is right, but at no size faster than the library."
        slow = next((mistake.says for mistake in exercise.mistake if mistake.caught == "slow"), "")
        return Verdict("speed", "timed", "slow", says, slow, table=tuple(table))
    return Verdict(table=tuple(table))
