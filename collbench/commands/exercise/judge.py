"""Judge of exercises: compilation, results, races and speed of a student's kernel.

A check has stages.  In the first, all ranks meet before and after every call, so that only the call itself is tested.
Then ranks come late, or leave early, and at last calls follow each other without a meeting.  A check ends with the
first failing stage.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import msgspec

from collbench.analysis.crossover import Advantage
from collbench.commands.exercise import picture
from collbench.commands.exercise.records import LIBRARY, Exercise, Mistake
from collbench.errors import PlatformError, SourceError
from collbench.measure import races
from collbench.platforms.layout import awaited
from collbench.results import Outcome, Result
from collbench.results.base import Observed
from collbench.runfile.store import NAME, read
from collbench.units import format_list

_STAGES = {"together": (True, True), "late": (False, True), "early": (True, False), "again": (False, False)}
"""Whether ranks meet before each call, and after it."""
_STALLS: dict[str, tuple[int, ...]] = dict.fromkeys(_STAGES, (races.START, races.BARRIER))  # one for each run
_STALLS["again"] += (races.RECEIVE, races.PACKETS)
_SEEDS = (94, 36, 143, 211)  # of a stage's runs: the first call of one is in place, that of the next is not
_START = {"again": 2**32 - 8}  # of counters, so that they wrap
_TIMEOUT = 4000  # milliseconds in which no thread takes a step, although it could run
_COUNTS = (1003, 260, 701, 64, 37, 1003, 5, 701)
_LEVEL = {"crash": "right", "wrong": "right", "stuck": "right", "race": "races"}
_RACES, _WINS = 3, 2  # most timings against the library, and wins needed at one size: other programs may disturb
_RIGHT = (Outcome.OK, Outcome.DISTURBED)  # disturbed: only the time is uncertain
_TRIES = 3  # timings of a size while a time is unsteady
_MORE = 1.2  # times the flags of the fewest steps, above which a step happens too often

_ADDRESS = re.compile(r"on unknown address (0x[0-9a-f]+)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NULL = 2**20  # largest address of an element behind a null pointer
_CLEAR = 8  # wrong elements that are not due to chance
_LARGE = 2**16  # above every sum in the harness; these are whole


@cache
def words() -> Mapping[str, Mapping[str, str]]:
    """Return the judge's sentences by subject."""
    texts: Mapping[str, Mapping[str, str]] = msgspec.toml.decode(Path(__file__).with_name("judge.toml").read_bytes())
    return texts


@dataclass(frozen=True)
class StudentFile:
    """A student's kernel file."""

    name: str
    text: str

    def line(self, number: int) -> str:
        """Return a line with its place, as evidence: `meet.cu:12: ...`."""
        lines = dict(enumerate(self.text.splitlines(), 1))
        return f"{self.name}:{number}: {lines.get(number, '').strip()}"

    def lines_in(self, output: str) -> list[int]:
        """Return the numbers of this file's lines in a tool's output, in order of appearance."""
        return [int(number) for number in re.findall(rf"(?:^|[ /]){re.escape(self.name)}:(\d+)", output, re.MULTILINE)]

    def fits(self, mistake: Mistake) -> bool:
        """Return whether the code, without comments, matches `has` of a mistake and does not match `lacks`."""
        code = _COMMENT.sub("", self.text)
        has = not mistake.has or bool(re.search(mistake.has, code, re.DOTALL))
        return has and not (mistake.lacks and re.search(mistake.lacks, code, re.DOTALL))


@dataclass(frozen=True)
class Access:
    """One side of a race."""

    by: str  # kernel, or caller, which fills inputs and checks results
    verb: str  # reads, writes
    what: str  # input, result, flag, slot, variable
    rank: int  # owner of the memory; -1 for a variable of the program
    line: int = 0  # of the student's file; 0 elsewhere

    def __str__(self) -> str:
        return f"{self.by} {self.verb} {self.what}"

    @property
    def does(self) -> str:
        """The access as a predicate, for example `reads the input of rank 1`."""
        if self.by == "kernel":
            return words()["show"]["variable" if self.rank < 0 else "place"].format(**vars(self))
        return words()["show"]["looks" if self.verb == "reads" else "fills" if self.what == "input" else "clears"]


@dataclass(frozen=True)
class Findings:
    """Outcomes of the runs of one stage with one number of ranks."""

    source: StudentFile
    exercise: Exercise
    stage: str
    ranks: int
    outcomes: Sequence[races.Outcome]

    @cached_property
    def caught(self) -> tuple[str, ...]:
        """The kinds of noticed mistakes, the clearest first: crash, wrong, stuck, race."""
        noticed = {catcher for outcome in self.outcomes for catcher in outcome.catchers}
        return tuple(name for name in (races.CRASHED, races.WRONG, races.GAVE_UP, races.RACE) if name in noticed)

    @cached_property
    def found(self) -> Sequence[Mapping[str, Any]]:
        """The first wrong result of each rank, with its run and its kind: a key of `value` in judge.toml."""
        runs = enumerate(self.outcomes)
        return [{**each, "kind": _kind(each), "run": run} for run, outcome in runs for each in outcome.found]

    @cached_property
    def wrong(self) -> Mapping[str, Any]:
        """The wrong result to report: the first with many wrong elements and a clear explanation, else the first."""
        return min(self.found, key=lambda one: (one["wrong"] < _CLEAR, one["kind"] == "kept", one["call"]), default={})

    @cached_property
    def stuck(self) -> int:
        """The first run that was given up."""
        return next(run for run, outcome in enumerate(self.outcomes) if outcome.gave_up)

    @cached_property
    def unordered(self) -> tuple[tuple[Access, ...], ...]:
        """Both sides of every race."""
        return tuple(race for outcome in self.outcomes for race in _races(self.source, outcome))

    def fits(self, mistake: Mistake) -> bool:
        """Return whether all conditions of a mistake are met."""
        accesses = [str(side) for race in self.unordered for side in race]
        return self.source.fits(mistake) and all(
            (
                mistake.stage in ("", self.stage),
                mistake.caught in ("", *self.caught),
                mistake.value in ("", self.wrong.get("why"), self.wrong.get("kind")),
                mistake.where in ("", self.wrong.get("where")),
                not mistake.own or self.wrong.get("ranks") == [self.wrong.get("rank")],
                not mistake.place or {result["in_place"] for result in self.found} == {mistake.place == "in place"},
                not mistake.first or any(outcome.gave_up and not outcome.calls for outcome in self.outcomes),
                not mistake.access or any(mistake.access in access for access in accesses),
            )
        )

    def evidence(self, caught: str, access: str) -> Iterator[str]:
        """Yield sentences and lines of the file that show a mistake; `access` selects a race."""
        if caught == "race":
            return self._race(access)
        return {"crash": self._crash, "wrong": self._wrong, "stuck": self._stuck}[caught]()

    def picture(self, caught: str, access: str) -> tuple[str, ...]:
        """Return a drawing of the failing call, as far as it is known; `access` selects a race."""
        if caught == "race":
            sides = [(side.rank if side.by == "caller" else -1, side.verb, side.does) for side in self._shown(access)]
            return picture.race(self.stage, sides)
        if caught == "stuck":
            run, call = self.stuck, min(self.outcomes[self.stuck].ended)
            lines = picture.hang(self.outcomes[run].ended, list(map(self._awaited, range(self.ranks))))
        elif caught == "wrong" and self.wrong:
            run, call = self.wrong["run"], self.wrong["call"]
            due = [call % self.ranks] if "root" in self.exercise.record.arguments else range(self.ranks)
            lines = picture.inputs(call, self.outcomes[run].ended, due, self.outcomes[run].found)
        else:
            return ()
        late = races.stalled(call, self.ranks)
        held = f"held{_STALLS[self.stage][run]}"
        return lines if late is None else (*lines, words()["show"][held].format(rank=late))

    def _awaited(self, rank: int) -> str:
        """Return for whom a rank waits; empty if it does not wait."""
        whom = awaited(place, rank, self.ranks) if (place := self.outcomes[self.stuck].waits[rank]) else ""
        return self.exercise.awaits.format((rank - 1) % self.ranks) if whom == "a packet" else whom

    def _wrong(self) -> Iterator[str]:
        if not self.wrong:  # the run was given up before a rank could explain its result
            return
        facts = {**self.wrong, "of": self.ranks, "call": self.wrong["call"] + 1, "last": self.wrong["length"] - 1}
        facts["place"] = " in place" if self.wrong["in_place"] else ""
        facts["verb"] = "is" if self.wrong["wrong"] == 1 else "are"
        for key in ("ranks", "extra"):
            facts[key] = " and of ".join(f"rank {rank}" for rank in self.wrong[key])
        facts["value"] = words()["value"][self.wrong["kind"]].format(**facts)
        for key in ("beyond",) if self.wrong["kind"] == "beyond" else ("wrong", "all"):
            yield words()["show"][key].format(**facts)

    def _stuck(self) -> Iterator[str]:
        yield words()["show"]["stuck"].format(of=self.ranks, call=min(self.outcomes[self.stuck].ended) + 1)

    def _crash(self) -> Iterator[str]:
        stderr = next(outcome.stderr for outcome in self.outcomes if outcome.crashed)
        yield from map(self.source.line, self.source.lines_in(stderr.partition("SEGV")[2])[:1])
        if (found := _ADDRESS.search(stderr)) and int(found[1], 16) < _NULL:
            yield words()["show"]["node" if self.exercise.node else "null"]

    def _shown(self, access: str) -> tuple[Access, ...]:
        """Return both sides of the race to show."""
        fitting = [race for race in self.unordered if any(access in str(side) for side in race)]
        return next(iter(fitting or self.unordered), ())

    def _race(self, access: str) -> Iterator[str]:
        show = words()["show"]
        for side in self._shown(access):
            yield show[side.by].format(rank=side.rank, does=side.does)
            if side.by == "kernel":
                yield f"  {self.source.line(side.line) if side.line else show['given']}"


def _kind(result: Mapping[str, Any]) -> str:
    """Return the key in judge.toml that explains a wrong result; it says more than the harness's `why`."""
    kind, got = str(result["why"]), float(result["got"])
    if kind == "untouched" and result["in_place"]:
        return "kept"
    if kind == "other" and not (got.is_integer() and abs(got) < _LARGE):
        return "bits"
    return "instead" if kind == "missing" and result["extra"] else kind


def _races(source: StudentFile, outcome: races.Outcome) -> Iterator[tuple[Access, ...]]:
    """Yield both accesses of every race of a run; the harness prints the start addresses of its memory."""
    places = []
    for line in outcome.stderr.splitlines():
        if line.startswith("memory "):
            _, rank, *bases = line.split()
            for base, what in zip(bases, ("flag", "slot", "input", "result"), strict=True):
                places.append((int(base, 16), what, int(rank)))
    for sides in outcome.sides:
        both = [_access(source, places, *side) for side in sides]
        # In place, inputs and results share memory.
        if any(str(access) == "caller writes input" for access in both):
            both = [replace(access, what="input") for access in both]
        yield tuple(both)


def _access(source: StudentFile, places: Sequence[tuple[int, str, int]], verb: str, address: int, stack: str) -> Access:
    # The last memory that begins before the address holds it; variables of the program lie before all.
    _, what, rank = max((place for place in places if place[0] <= address), default=(0, "variable", -1))
    verb = f"{verb}s"
    if "Rank::launch" in stack:
        return Access("kernel", verb, what, rank, next(iter(source.lines_in(stack)), 0))
    return Access("caller", verb, "input" if verb == "writes" and "std::fill" not in stack else "result", rank)


@dataclass(frozen=True)
class Judgement:
    """The outcome of a check; passed if `level` is empty."""

    level: str = ""  # of the hint: builds, right, races, speed
    stage: str = ""
    caught: str = ""
    says: str = ""  # a sentence on the failure
    mistake: str = ""  # a sentence on the mistake, if it is a known one
    hint: str = ""  # of that mistake
    evidence: tuple[str, ...] = ()
    picture: tuple[str, ...] = ()  # of the failing call
    notes: tuple[str, ...] = ()  # missing checks
    remark: str = ""  # a sentence on a right answer that takes too many steps
    table: Mapping[str, Mapping[str, Observed]] = field(default_factory=dict)  # by size and implementation

    @property
    def passed(self) -> bool:
        """Whether no mistake was found."""
        return not self.level


def judge(exercise: Exercise, folder: Path) -> Judgement:
    """Run the kernel in a student's folder through all stages, without timing it.

    SourceError if there is no such file in the folder, PlatformError if there is no compiler here.
    """
    file = folder / f"{exercise.kernel}.cu"
    try:
        source = StudentFile(file.name, file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{file} cannot be read: {getattr(error, 'strerror', error)}") from None
    try:
        prefix, detector = races.launcher(), True
    except races.NoSanitizer:
        prefix, detector = (), False
    try:
        binary = races.build_user_kernel(file, exercise.kernel, exercise.record, detector)
    except ValueError as error:
        return _unbuilt(exercise, source, str(error))
    notes = () if detector else (words()["show"]["blind"],)

    # Only the first failing stage is reported: later ones mix several mistakes.
    raised = 0
    for stage in _STAGES:
        for ranks in exercise.ranks:
            outcomes = _outcomes(exercise, stage, ranks, partial(races.outcome, binary, before=prefix))
            findings = Findings(source, exercise, stage, ranks, outcomes)
            if findings.caught:
                return _verdict(exercise, findings, notes)
            raised = raised or outcomes[0].raised
    more = raised / exercise.raises if exercise.raises else 1
    return Judgement(notes=notes, remark=words()["show"]["more"].format(more=more) if more > _MORE else "")


def _unbuilt(exercise: Exercise, source: StudentFile, said: str) -> Judgement:
    """Return the first errors of the compiler in the student's file; PlatformError if there are none in it."""
    errors = re.findall(rf"^(?:\./)?{re.escape(source.name)}:(\d+):.*?error: (.*)$", said, re.MULTILINE)
    if not errors and f" {exercise.kernel}(" not in source.text:
        errors = [("1", f"there is no kernel {exercise.kernel} in this file")]
    if not errors:
        first = next((line for line in said.splitlines() if "error" in line), said.strip()[:200])
        raise PlatformError(f"{source.name} could not be compiled: {first}")
    evidence = []
    for number, why in errors[:2]:
        evidence += [source.line(int(number)), f"  {why}"]
    return Judgement("builds", caught="builds", says=words()["caught"]["builds"], evidence=tuple(evidence))


def _outcomes(exercise: Exercise, stage: str, ranks: int, outcome: "partial[races.Outcome]") -> list[races.Outcome]:
    before, after = _STAGES[stage]
    first = races.Run((races.USER_KERNEL,), ranks, counts=_COUNTS, timeout=_TIMEOUT, careful=True, before=before)
    first = replace(first, after=after, start=_START.get(stage, 0), node=exercise.node, fifo=exercise.record.fifo)
    runs = [replace(first, seed=seed, stall=stall) for seed, stall in zip(_SEEDS, _STALLS[stage], strict=False)]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(outcome, runs))


def _verdict(exercise: Exercise, findings: Findings, notes: tuple[str, ...]) -> Judgement:
    fitting = next((mistake for mistake in exercise.mistake if findings.fits(mistake)), Mistake(""))
    caught = fitting.caught or findings.caught[0]
    says = words()["stage"][findings.stage] + words()["caught"][caught]
    shown = tuple(findings.evidence(caught, fitting.access)), findings.picture(caught, fitting.access)
    return Judgement(_LEVEL[caught], findings.stage, caught, says, fitting.says, fitting.hint, *shown, notes)


def timed(exercise: Exercise, folder: Path, budget: float = 0.5) -> Judgement:
    """Time a right answer against the library and the ladder's rung, a sweep a size; PlatformError if one fails."""
    table: dict[str, Mapping[str, Observed]] = {}
    wins: Counter[str] = Counter()
    unsure: set[str] = set()

    # After the first timing only sizes with a win are repeated, since a second win decides.
    for _ in range(_RACES if exercise.beats else 1):
        for size in [size for size in exercise.sizes if wins[size]] or exercise.sizes:
            for _ in range(_TRIES):
                times, problem = _times(exercise, folder, size, budget)
                if not any(map(unsteady, times.values())):
                    break
            if problem:
                says = words()["stage"]["timed"] + words()["caught"]["wrong"]
                return Judgement("right", "timed", "wrong", says, evidence=(f"At {size} B: {problem}",))
            table[size] = times
            mine, library = times[exercise.kernel], times[LIBRARY]
            sign = 0 if unsteady(mine) or unsteady(library) else Advantage.of(mine, library).sign
            wins[size] += sign > 0
            unsure |= set() if sign else {size}
        if _WINS in wins.values():
            break
    if not exercise.beats or _WINS in wins.values():
        return Judgement(table=table)
    source = StudentFile("", (folder / f"{exercise.kernel}.cu").read_text(encoding="utf-8"))
    slow = next((each for each in exercise.mistake if each.caught == "slow" and source.fits(each)), Mistake(""))
    sizes = format_list(size for size in exercise.sizes if size in unsure)
    evidence = (words()["show"]["unsure"].format(sizes=sizes),) if unsure else ()
    return Judgement("speed", "timed", "slow", words()["caught"]["slow"], slow.says, slow.hint, evidence, table=table)


def unsteady(row: Observed) -> str:
    """Return why a time says little, `disturbed` or `uncertain`; empty for a steady one."""
    return "disturbed" if row.disturbed else "uncertain" if row.unsure else ""


def _times(exercise: Exercise, folder: Path, size: str, budget: float) -> tuple[Mapping[str, Observed], str]:
    """Return the times of a size by implementation, and the failure of the student's kernel, if any."""
    names = f"{LIBRARY},{exercise.rung},{exercise.kernel}"
    what = ("--on", "cpu", "--op", exercise.record.collectives[0], "--impl", names, "-b", size, "-e", size)
    rows, complaint = swept(folder, *what, "--starts", "1", "--budget", str(budget))
    mine = next((row for row in rows if row.implementation == exercise.kernel), None)
    if not mine or mine.outcome not in _RIGHT:
        return {}, (mine and (mine.wrong or mine.reason)) or complaint
    times = {row.implementation: row for row in rows if isinstance(row, Observed)}
    if LIBRARY not in times:
        raise PlatformError(f"{LIBRARY} could not be timed, so there is nothing to compare with: {complaint}")
    return times, ""


def swept(kernels: Path, *words: str) -> tuple[Sequence[Result], str]:
    """Return the results of a sweep with the kernels of a folder, and its last line on stderr.

    The sweep is a separate process, since a process looks for kernels only once.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "run")
        command = [sys.executable, "-P", "-m", "collbench", "sweep", *words, "--no-plot", "--out", str(out)]
        environment = os.environ | {"COLLBENCH_KERNELS": str(kernels.absolute())}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        results = read(out).results if (out / NAME).exists() else ()
    return results, (done.stderr.strip() or "the sweep has no result").splitlines()[-1]
