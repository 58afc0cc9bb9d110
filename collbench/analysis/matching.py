"""Which rows of two runs are compared, which cannot be, and what the runs' headers say differently."""

import json
import math
import re
from bisect import bisect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, TypeGuard

from collbench.analysis.judgement import Judgement, Word
from collbench.cases import Case
from collbench.collectives import COLLECTIVES, find_collective
from collbench.errors import UsageError
from collbench.results import Explanation, Measurement, Observed, Outcome, Prediction, Result, by_key, family
from collbench.runfile.schema import Header
from collbench.runfile.store import Run
from collbench.units import counted, format_size, parse_size, printable

Key = tuple[Case, str]
Selected = Callable[[Case, str], bool] | None

RIGHT, MISSING = "right", "missing"
WRONG, SKIPPED, FAILED = Outcome.WRONG.value, Outcome.SKIPPED.value, Outcome.FAILED.value
DISTURBED = Outcome.DISTURBED.value
CUT_OFF, LEFT_OUT = "missing (the run was cut off)", "missing (lines of it could not be read)"

COMPARED_PARTS = (  # of a header, outermost first; what differs from run to run anyway is in none
    ("collbench",),
    ("environment",),
    ("topology",),
    ("sweep", "sampling"),
    ("sweep", "spin"),
    ("sweep", "bind"),
    ("sweep", "starts"),
    ("sweep", "ranks"),
    ("sweep", "in_place"),
    ("interleaved", "setting"),
)
_FLEETING = {"shm_free"}
_LONGEST = 60  # characters of a value that are shown
_ABSENT = object()
_COUNT = re.compile(r"^\d+ (ranks? on \d+ )?x ")


@dataclass(frozen=True)
class Selection:
    """The rows that `--only` names; a kind of which nothing is named lets everything through."""

    collectives: frozenset[str] = frozenset()
    implementations: frozenset[str] = frozenset()
    sizes: tuple[tuple[int, float], ...] = ()  # first and last, both included

    def __call__(self, case: Case, implementation: str) -> bool:
        """Return whether a row is selected."""
        return (
            (not self.collectives or case.collective.name in self.collectives)
            and (not self.implementations or implementation in self.implementations)
            and (not self.sizes or any(first <= case.nbytes <= last for first, last in self.sizes))
        )


def selection(text: str, implementations: Collection[str]) -> Selection:
    """Parse `--only allreduce,ring-flags,1M..`; UsageError for any other word.

    A word is a collective, an implementation or a size (`4K`, `1K..1M`, `1M..`, `..64K`).  Words of one kind are
    alternatives; kinds must all hold.
    """
    collectives, names, sizes = set(), set(), []
    for word in filter(None, (word.strip() for word in text.split(","))):
        meant = {name for name in implementations if word in (name, family(name))}
        if meant:
            names |= {word} & meant or meant
            continue
        try:
            collectives.add(find_collective(word).name)
        except UsageError:
            sizes.append(_sizes(word, implementations))
    return Selection(frozenset(collectives), frozenset(names), tuple(sizes))


def _sizes(word: str, implementations: Collection[str]) -> tuple[int, float]:
    first, dots, last = word.partition("..")
    try:
        low = parse_size(first) if first else 0
        high: float = parse_size(last) if last else low
    except UsageError:
        choices = ", ".join((*COLLECTIVES, *implementations))
        raise UsageError(
            f"--only: unknown word {word!r}; choose from: {choices}, or a size such as 4K, 1K..1M, 1M.. or ..64K"
        ) from None
    if dots and not last:
        high = float("inf")
    if low > high:
        raise UsageError(f"--only {word}: no size lies in it; write the smaller one first")
    return low, high


@dataclass(frozen=True)
class Unmatched:
    """A case by an implementation that cannot be compared, and its state in either run."""

    case: Case
    implementation: str
    base: str
    new: str
    reason: str = ""  # of the later run, if it gives one

    @property
    def regression(self) -> bool:
        """Whether it is wrong now, or was right and failed; of sums whose bits are compared only what became so."""
        as_before = self.base == WRONG and self.case.work
        return (self.new == WRONG and not as_before) or (self.base == RIGHT and self.new == FAILED)

    @property
    def hides(self) -> bool:
        """Whether it was right and was to be measured again, but its state is not known."""
        return self.base == RIGHT and self.new in (SKIPPED, CUT_OFF, LEFT_OUT, DISTURBED)

    @property
    def judgement(self) -> Judgement:
        """WRONG for a regression, else UNKNOWN; it is held against nothing."""
        what = named(self.case, format_size(self.case.nbytes), self.implementation)
        states = f"{self.base} in BASE, {self.new} in NEW" + (f": {self.reason}" if self.reason else "")
        return Judgement(what, "", Word.WRONG if self.regression else Word.UNKNOWN, printable(states))


def named(case: Case, size: str, implementation: str) -> str:
    """Return what a judgement is of."""
    return f"{case.title}, {size}, {printable(implementation)}"


def latest(run: Run, selected: Selected) -> dict[Key, Result]:
    """Return the result of each case and implementation; neither predictions nor explanations."""
    results: dict[Key, Result] = {}
    for result in run.cases:
        measured = not isinstance(result, Prediction | Explanation)
        if measured and (not selected or selected(result.case, result.implementation)):
            results[result.case, result.implementation] = result
    return results


def unmatched(base: Run, new: Run, selected: Selected = None) -> Iterator[Unmatched]:
    """Return in the order of BASE, then of NEW, what cannot be compared; not what is skipped in both."""
    before, after = latest(base, selected), latest(new, selected)
    for key in dict.fromkeys((*before, *after)):
        states = _state(before.get(key), base), _state(after.get(key), new)
        if states != (RIGHT, RIGHT) and not set(states) <= {SKIPPED, MISSING, CUT_OFF, LEFT_OUT}:
            later = after.get(key)
            reason = later.reason if later else ""
            if isinstance(later, Measurement):
                reason = later.wrong or str(later.scheduling or "")
            yield Unmatched(*key, *states, reason)


def no_common_size(base: Run, new: Run) -> str:
    """Return `no size in common, nearest 8 KiB and 16 KiB` of runs that differ by their sizes alone; else nothing."""
    before, after = (by_key(latest(run, None).values(), lambda result: result.curve) for run in (base, new))
    sizes = []
    for curve in before.keys() & after.keys():
        ones, others = (sorted({row.case.nbytes for row in rows} - {0}) for rows in (before[curve], after[curve]))
        for one in ones:
            place = bisect(others, one)
            sizes += [(one, other) for other in others[max(0, place - 1) : place + 1]]
    if not sizes or any(first == second for first, second in sizes):
        return ""
    nearest = min(sizes, key=lambda pair: (abs(math.log(pair[0] / pair[1])), pair))
    return f"no size in common, nearest {' and '.join(map(format_size, nearest))}"


def _state(result: Result | None, run: Run) -> str:
    if result is None:
        if not run.whole or not run.header.imported.complete:
            return CUT_OFF
        return LEFT_OUT if unread(run) else MISSING
    if result.outcome is not Outcome.OK:
        return str(result.outcome.value)
    return RIGHT if is_right(result) or result.digest else "not timed"


def is_right(result: Result | None) -> TypeGuard[Observed]:
    """Return whether a result has a time to compare: of a message with bytes, right and not disturbed."""
    if not isinstance(result, Observed) or result.outcome is not Outcome.OK:
        return False
    return result.case.nbytes > 0 and min(result.times, default=0) > 0


def unread(run: Run) -> str:
    """Return why lines of a run, or of the log that it was imported from, could not be read; empty if all could."""
    first, *others = (*run.left_out, *run.header.imported.left_out, "")
    more = f", and {counted(len(others) - 1, 'more reason')}" if len(others) > 1 else ""
    return f"left out: {printable(first)}{more}" if first else ""


class Difference(NamedTuple):
    """A fact by its place in the header, and what either run says; `-` where it says nothing."""

    name: str
    base: str
    new: str


def differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """Return what two headers say differently, in the order of the header's parts."""
    for path in COMPARED_PARTS:
        yield from _between(".".join(path), _at(base, path), _at(new, path))


def machine(header: Header) -> tuple[str, ...]:
    """Return what tells the machine of a run from others; () if unknown.

    That is the GPUs or sockets that ranks run on, or the model.  Not how many there are, nor the host's name, which
    changes with every container.  A log of another tool has them in its topology's name, `8 x NVIDIA H100 on 2 nodes`.
    """
    topology = header.topology
    if topology.model:
        return ("model", topology.name)
    devices = topology.gpus if topology.platform == "gpu" else topology.sockets
    names = {device.name for device in devices} or {_COUNT.sub("", topology.name)}
    known = sorted(name for name in names if name and "unknown" not in name)
    return (topology.platform, *known) if known else ()


def several_machines(headers: Iterable[Header]) -> bool:
    """Return whether some of the runs are known to be of different machines or systems."""
    return len({machine(header) for header in headers} - {()}) > 1


def _at(header: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        header = header.get(name, _ABSENT) if isinstance(header, Mapping) else _ABSENT
    return header


def _records(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, Mapping) for part in value)


def _between(name: str, base: Any, new: Any) -> Iterator[Difference]:
    if all(isinstance(value, Mapping) or value is _ABSENT for value in (base, new)):
        keys = chain.from_iterable(value for value in (base, new) if value is not _ABSENT)
        for key in dict.fromkeys(keys):
            if key not in _FLEETING:
                yield from _between(f"{name}.{key}", _at(base, (key,)), _at(new, (key,)))
    # A list of records, such as caches, differs record by record.
    elif _records(base) and _records(new) and len(base) == len(new):
        for number, pair in enumerate(zip(base, new, strict=True)):
            yield from _between(f"{name}.{number}", *pair)
    elif base is not new and base != new:
        yield Difference(printable(name), _text(base), _text(new))


def _text(value: Any) -> str:
    if value is _ABSENT:
        return "-"
    text = printable(value if isinstance(value, str) else json.dumps(value, default=str))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
