"""`--only allreduce,ring-flags,1M..`: which rows are wanted.

A word is a collective, an implementation or a size (`4K`, `1K..1M`, `1M..`, `..64K`).  Words of one kind are
alternatives; kinds must all hold.

What two runs cannot be compared in: rows that one of them lacks, or that are wrong, failed or skipped in one.

What the headers of two runs say differently: hardware, host, versions, variables, settings.

A header may come from anywhere and hold anything, so nothing of it is relied on.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from collbench.cases import Case
from collbench.collectives import COLLECTIVES, find_collective
from collbench.errors import UsageError
from collbench.measurement import Explanation, Measurement, Prediction, Result, Untimed
from collbench.observed import Observed
from collbench.outcome import Outcome
from collbench.runfile.file import Run
from collbench.runfile.header import Header
from collbench.units import parse_size, printable


@dataclass(frozen=True)
class Selection:
    """What is wanted; a kind of which nothing is named lets everything through."""

    collectives: frozenset[str] = frozenset()
    implementations: frozenset[str] = frozenset()
    sizes: tuple[tuple[int, float], ...] = ()  # first and last, both included

    def __call__(self, case: Case, implementation: str) -> bool:
        """Whether a row is wanted."""
        return (
            (not self.collectives or case.collective.name in self.collectives)
            and (not self.implementations or implementation in self.implementations)
            and (not self.sizes or any(first <= case.nbytes <= last for first, last in self.sizes))
        )


def selection(text: str, implementations: Collection[str]) -> Selection:
    """From the words of `--only`; UsageError for a word that is none of a collective, an implementation or a size."""
    collectives, names, sizes = set(), set(), []
    for word in filter(None, (word.strip() for word in text.split(","))):
        if word in implementations:
            names.add(word)
        elif collective := _collective(word):
            collectives.add(collective)
        else:
            sizes.append(_size(word, implementations))
    return Selection(frozenset(collectives), frozenset(names), tuple(sizes))


def _collective(word: str) -> str:
    try:
        return find_collective(word).name
    except UsageError:
        return ""


def _size(word: str, implementations: Collection[str]) -> tuple[int, float]:
    first, dots, last = word.partition("..")
    try:
        low = parse_size(first) if first else 0
        high = parse_size(last) if last else float("inf") if dots else low
    except UsageError:
        choices = ", ".join((*COLLECTIVES, *implementations))
        raise UsageError(
            f"--only: unknown word {word!r}; choose from: {choices}, or a size such as 4K, 1K..1M, 1M.. or ..64K"
        ) from None
    if low > high:
        raise UsageError(f"--only {word}: no size lies in it; write the smaller one first")
    return low, high


Key = tuple[Case, str]
Selected = Callable[[Case, str], bool] | None

RIGHT, MISSING = "right", "missing"
WRONG, SKIPPED, FAILED = Outcome.WRONG.value, Outcome.SKIPPED.value, Outcome.FAILED.value
DISTURBED = Outcome.DISTURBED.value
CUT_OFF = "missing (the run was cut off)"


@dataclass(frozen=True)
class Unmatched:
    """A case by one implementation, and how it stands in either run; `reason` is the later run's, if it gives one."""

    case: Case
    implementation: str
    base: str
    new: str
    reason: str = ""

    @property
    def regression(self) -> bool:
        """Whether it was right, and is wrong or failed now."""
        return self.base == RIGHT and self.new in (WRONG, FAILED)

    @property
    def hides(self) -> bool:
        """Whether it was right and was to be measured again, so that nobody knows how it stands."""
        return self.base == RIGHT and self.new in (SKIPPED, CUT_OFF, DISTURBED)


def latest(run: Run, selected: Selected) -> dict[Key, Result]:
    """The last result of each case and implementation; neither predictions nor explanations."""
    return {
        (result.case, result.implementation): result
        for result in run.results
        if not isinstance(result, Prediction | Explanation)
        and (not selected or selected(result.case, result.implementation))
    }


def unmatched(base: Run, new: Run, selected: Selected = None) -> Iterator[Unmatched]:
    """In the order of BASE, then what is in NEW only; what is skipped in both is not worth a word."""
    before, after = latest(base, selected), latest(new, selected)
    for key in dict.fromkeys((*before, *after)):
        one, other = _state(before.get(key), base), _state(after.get(key), new)
        if (one, other) != (RIGHT, RIGHT) and not {one, other} <= {SKIPPED, MISSING, CUT_OFF}:
            yield Unmatched(*key, one, other, _reason(after.get(key)))


def _state(result: Result | None, run: Run) -> str:
    if result is None:
        return MISSING if run.complete else CUT_OFF
    if result.outcome is not Outcome.OK:
        return str(result.outcome.value)
    timed = isinstance(result, Observed) and result.case.nbytes and min(result.times, default=0) > 0
    return RIGHT if timed else "not timed"


def _reason(result: Result | None) -> str:
    if isinstance(result, Untimed):
        return result.reason
    if not isinstance(result, Measurement):
        return ""
    return result.wrong or str(result.scheduling or "")


_TOLD = (  # parts of a header, outermost first; what changes from run to run of itself is in none
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


class Difference(NamedTuple):
    """A fact by its place in the header, and what either run says; `-` where it says nothing."""

    name: str
    base: str
    new: str


def differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """All of them, in the order of the header's parts."""
    for path in _TOLD:
        yield from _between(".".join(path), _at(base, path), _at(new, path))


def machine(header: Header) -> tuple[str, ...]:
    """What tells the machine of a run from others: the GPUs or sockets that ranks live on, or the model; () if unknown.

    Not how many there are, nor the host's name, which changes with every container.  A log of another tool has them in
    its topology's name, `8 x NVIDIA H100 on 2 nodes`.
    """
    topology = header.topology
    if topology.model:
        return ("model", topology.name)
    devices = topology.gpus if topology.platform == "gpu" else topology.sockets
    names = {device.name for device in devices} or {_COUNT.sub("", topology.name)}
    known = sorted(name for name in names if name and "unknown" not in name)
    return (topology.platform, *known) if known else ()


def several_machines(headers: Iterable[Header]) -> bool:
    """Whether some of the runs are known to be of different machines or systems."""
    return len({machine(header) for header in headers} - {()}) > 1


def _at(header: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(header, Mapping) or name not in header:
            return _ABSENT
        header = header[name]
    return header


def _between(name: str, one: Any, other: Any) -> Iterator[Difference]:
    parts = [value for value in (one, other) if isinstance(value, Mapping)]
    if all(isinstance(value, Mapping) or value is _ABSENT for value in (one, other)):
        for key in dict.fromkeys(key for part in parts for key in part if key not in _FLEETING):
            yield from _between(f"{name}.{key}", _at(one, (key,)), _at(other, (key,)))
    elif one is not other and one != other:
        yield Difference(printable(name), _text(one), _text(other))


def _text(value: Any) -> str:
    if value is _ABSENT:
        return "-"
    text = printable(value if isinstance(value, str) else json.dumps(value, default=str))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
