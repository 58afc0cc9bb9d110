"""What can be wrong with a result: data, memory that is not its own, or a time that cannot be."""

from dataclasses import asdict, dataclass
from typing import Any, Protocol


class Flaw(Protocol):
    """One thing that makes a result wrong; its text says what and where."""

    @property
    def wrong(self) -> int:
        """Elements of the result that are known to be wrong, on one rank."""


@dataclass(frozen=True)
class Mismatch:
    """The first wrong element of a result (lowest rank, earliest call, lowest index), and how many there are there."""

    rank: int
    index: int  # element of the receive buffer
    chunk: int  # which of the chunks, one a rank, it lies in: a ring's chunk = rank + step
    got: str  # empty where it is known to differ and no more
    expected: str
    wrong: int
    call: int | None = None  # of those that followed each other without a pause, counted from 0
    calls: int | None = None  # all of these
    bound: str | None = None  # by how much it may be off, where the implementation is not exact

    def __str__(self) -> str:
        where = f"rank {self.rank}, element {self.index} (chunk {self.chunk})"
        if self.call is not None:
            where = f"call {self.call + 1} of {self.calls} back to back, {where}"
        got = f"got {self.got}, " if self.got else ""
        within = f" within {self.bound}" if self.bound else ""
        return f"{where}: {got}expected {self.expected}{within}; {self.wrong} wrong on this rank"


@dataclass(frozen=True)
class Overrun:
    """Bytes beside a buffer, which nobody may write, do not hold what they held."""

    rank: int
    buffer: str  # beside which they are
    offset: int  # of the changed byte nearest to it, from its end; negative, from its start
    nbytes: int  # changed

    wrong = 0

    def __str__(self) -> str:
        bytes_ = f"{self.nbytes} byte{'s' if self.nbytes > 1 else ''}"
        where = f"before the start of the {self.buffer}" if self.offset < 0 else f"past the end of the {self.buffer}"
        return f"rank {self.rank}: {bytes_} written {where}, the nearest at {self.offset:+}"


@dataclass(frozen=True)
class Implausible:
    """A time that no machine needs so little of, with the arithmetic."""

    seconds: float  # an operation, as it seemed
    reason: str

    wrong = 0

    def __str__(self) -> str:
        return f"implausible: {self.reason}"


@dataclass(frozen=True)
class Miscomputed:
    """The first wrong element of what a rank computed in steps (lowest rank, row, column), and how many there are."""

    rank: int
    products: int  # that it should have made by then
    row: int
    column: int
    got: str
    expected: str
    wrong: int

    def __str__(self) -> str:
        where = f"rank {self.rank}, row {self.row}, column {self.column} after {self.products} matrix products"
        return f"{where}: got {self.got}, expected {self.expected}; {self.wrong} wrong on this rank"


@dataclass(frozen=True)
class Disagreement:
    """Ranks hold different results, each of which could be right: whoever trains with them drifts apart."""

    rank: int

    wrong = 0

    def __str__(self) -> str:
        return f"rank {self.rank} holds other bits than rank 0, though both are within the bound"


@dataclass(frozen=True)
class Unlearned:
    """The first weight of an update of a training run that is not what its gradients make of it."""

    rank: int  # that made the update
    update: str  # of which weights
    index: int
    got: str  # empty where there is nothing to hold against anything
    expected: str
    bound: float  # how far rounding alone may take them apart
    wrong: int

    def __str__(self) -> str:
        if not self.got:
            return f"rank {self.rank}, update {self.update}: {self.expected}"
        where = f"rank {self.rank}, update {self.update}, weight {self.index}"
        return f"{where}: got {self.got}, expected {self.expected} within {self.bound:.1g}; {self.wrong} weights wrong"


_KINDS: dict[str, type[Mismatch | Overrun | Implausible | Miscomputed | Disagreement | Unlearned]] = {
    "mismatch": Mismatch,
    "overrun": Overrun,
    "implausible": Implausible,
    "miscomputed": Miscomputed,
    "disagreement": Disagreement,
    "unlearned": Unlearned,
}
_PLAIN = ("rank", "index", "chunk", "got", "expected", "wrong")


def flaw_fields(flaw: Flaw) -> dict[str, Any]:
    """A flaw as fields of a run file's row: `mismatch`, which every reader knows, and `flaw`, which is all of it."""
    kind, every = type(flaw).__name__.lower(), asdict(flaw)  # type: ignore[call-overload]
    if kind == "mismatch":
        plain = {name: every.pop(name) for name in _PLAIN}
        rest = {name: value for name, value in every.items() if value is not None}
        return {"mismatch": plain} | ({"flaw": {"kind": kind} | rest} if rest else {})
    rank = every.get("rank", 0)
    plain = {"rank": rank, "index": 0, "chunk": 0, "got": str(flaw), "expected": "nothing of the kind", "wrong": 0}
    return {"mismatch": plain, "flaw": {"kind": kind} | every}


def to_flaw(fields: dict[str, Any]) -> Flaw:
    """The flaw of a row; KeyError, TypeError or AttributeError if it has none."""
    more = dict(fields.get("flaw") or {})
    kind = more.pop("kind", "mismatch")
    plain = {name: fields["mismatch"][name] for name in _PLAIN}
    if kind == "mismatch":
        return Mismatch(**plain, call=more.get("call"), calls=more.get("calls"), bound=more.get("bound"))
    return _KINDS[kind](**more) if kind in _KINDS else Mismatch(**plain)
