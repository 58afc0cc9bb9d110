"""Facts of a result: what became of it, its note, and what its check found."""

import re
from dataclasses import fields, replace
from enum import Enum

from collbench.records import Record


class Outcome(Enum):
    """What became of a case."""

    OK = "ok"
    WRONG = "wrong"
    FAILED = "failed"
    SKIPPED = "skipped"
    PREDICTED = "predicted"
    DISTURBED = "disturbed"

    @property
    def alarming(self) -> bool:
        """Whether a reader must not overlook it: what is broken, and what says more of the machine than of the code."""
        return self.bad or self is Outcome.DISTURBED

    @property
    def bad(self) -> bool:
        """Whether something is broken."""
        return self in (Outcome.WRONG, Outcome.FAILED)


def family(implementation: str) -> str:
    """Return what implementations have in common that differ in their library only: `mpi` of `mpi@openmpi`."""
    return implementation.partition("@")[0]


def labelled(implementation: str, library: str) -> str:
    """Return the name of an implementation with its library: `mpi: MPICH 5.0.2`, or `nccl: 2.30.4` for NCCL itself."""
    if not library:
        return implementation
    product, _, version = library.partition(" ")

    # An implementation that has its library's name needs no second one: `nccl@symmetric@2.30.7` becomes
    # `nccl@symmetric: 2.30.7`.
    if product.lower() == family(implementation) and version:
        return f"{implementation.removesuffix(f'@{version}')}: {version}"
    return f"{family(implementation)}: {library}"


PACED = "the GPUs waited for the host, which enqueues too slowly: compute more in a step, or a process each (mpirun)"


class Sharing(Record, frozen=True):
    """More ranks than GPUs: what goes from one rank to another on the same GPU takes no bus."""

    ranks: int
    gpus: int
    processes: bool = False  # whether a rank is a process; processes on one GPU run in turns

    def __str__(self) -> str:
        who = "processes" if self.processes else "ranks"
        return f"{self.ranks} {who} share {self.gpus} GPU{'s' if self.gpus > 1 else ''}"


class Note(Record, frozen=True):
    """Facts about how a number came to be; `str` is their text, empty where nothing is out of the ordinary."""

    shared: Sharing | None = None
    oversubscribed: bool = False  # more ranks than cores
    spin: str = ""  # how a waiting rank spins, where the user chose it
    picked: str = ""  # the implementation that `auto` took
    remarks: tuple[str, ...] = ()  # all else, in words
    bound: bool = False  # of a prediction: a lower bound, with no measurement behind it, so it never wins a comparison
    paced: bool = False  # by the host, which enqueued more slowly than the devices executed
    buffers: str = ""  # how those of a library were allocated and registered

    @staticmethod
    def of(*remarks: str) -> "Note":
        """Return a note of these remarks, without the empty ones."""
        return Note(remarks=tuple(filter(None, remarks)))

    def __or__(self, other: "Note") -> "Note":
        """Return the facts of both notes."""
        if other == NO_NOTE:
            return self
        # Of either note what it has, and the remarks of both.
        either = {field.name: getattr(self, field.name) or getattr(other, field.name) for field in fields(self)}
        return Note(**either | {"remarks": self.remarks + other.remarks})

    @property
    def brief(self) -> "Note":
        """The note of a row without what is said once of all: sharing, NCCL's variables for it, a library's buffers."""
        rest = (remark for remark in self.remarks if not (self.shared and remark.startswith("NCCL_")))
        return replace(self, shared=None, buffers="", remarks=tuple(rest))

    def __str__(self) -> str:
        cores = {"oversubscribed": self.oversubscribed, f"--spin {self.spin}": self.spin}
        facts = {
            str(self.shared): self.shared,
            ", ".join(text for text, holds in cores.items() if holds): True,
            f"picked {self.picked}": self.picked,
            "a bound": self.bound,
            PACED: self.paced,
            f"{_BUFFERS}{self.buffers}": self.buffers,
        }
        texts = [text for text, holds in facts.items() if holds]
        return "; ".join(filter(None, (*texts, *self.remarks)))


_BUFFERS = "buffers: "
NO_NOTE = Note()
"""Nothing is out of the ordinary."""
_SHARED = re.compile(r"(\d{1,9}) (ranks|processes) share (\d{1,9}) GPUs?")
_CORES = re.compile(r"(oversubscribed)?(?:, )?(?:--spin (\w+))?")


def note_of(text: str) -> Note:
    """Return the note with this text; a part in which no fact is recognised becomes a remark."""
    note = Note()
    for part in filter(None, text.split("; ")):
        note |= _fact(part)
    return note


def _fact(part: str) -> Note:
    if shared := _SHARED.fullmatch(part):
        return Note(shared=Sharing(int(shared[1]), int(shared[3]), shared[2] == "processes"))
    if cores := _CORES.fullmatch(part):
        return Note(oversubscribed=bool(cores[1]), spin=cores[2] or "")
    if part.startswith("picked "):
        return Note(picked=part.removeprefix("picked "))
    if part.startswith(_BUFFERS):
        return Note(buffers=part.removeprefix(_BUFFERS))
    return Note.of(part)


class _Failure(Record, frozen=True, tag_field="kind"):
    """A wrong result's fault: data, memory outside its buffers, or an impossible time; `str` says what and where."""

    wrong = 0  # number of elements of the result that are known to be wrong, on one rank


class Mismatch(_Failure, frozen=True, tag="mismatch"):
    """The first wrong element of a result (lowest rank, earliest call, lowest index), and how many there are there."""

    rank: int
    index: int  # element of the receive buffer
    chunk: int  # index of the chunk (there is one for each rank) that has it: in a ring, chunk = rank + step
    got: str  # empty where it is known to differ and no more
    expected: str
    wrong: int
    call: int | None = None  # of several calls without a pause between them, counted from 0
    calls: int | None = None  # number of these calls
    bound: str | None = None  # allowed distance, where the implementation is not exact

    def __str__(self) -> str:
        where = f"rank {self.rank}, element {self.index} (chunk {self.chunk})"
        if self.call is not None:
            where = f"call {self.call + 1} of {self.calls} back to back, {where}"
        got = f"got {self.got}, " if self.got else ""
        within = f" within {self.bound}" if self.bound else ""
        return f"{where}: {got}expected {self.expected}{within}; {self.wrong} wrong on this rank"


class Overrun(_Failure, frozen=True, tag="overrun"):
    """Guard bytes before or after a buffer were overwritten."""

    rank: int
    buffer: str  # before or after which they are
    offset: int  # of the changed byte nearest to the buffer, from its end; negative, from its start
    nbytes: int  # changed

    def __str__(self) -> str:
        changed = f"{self.nbytes} byte{'s' if self.nbytes > 1 else ''}"
        where = f"before the start of the {self.buffer}" if self.offset < 0 else f"past the end of the {self.buffer}"
        return f"rank {self.rank}: {changed} written {where}, the nearest at {self.offset:+}"


class Implausible(_Failure, frozen=True, tag="implausible"):
    """A time that is less than any machine needs, with the arithmetic."""

    seconds: float  # of an operation, as measured
    reason: str

    def __str__(self) -> str:
        return f"implausible: {self.reason}"


class GemmMismatch(_Failure, frozen=True, tag="miscomputed"):
    """The first wrong element of the matrix that a rank computed in steps (lowest rank, row, column)."""

    rank: int
    products: int  # matrix products that the rank should have made by then
    row: int
    column: int
    got: str
    expected: str
    wrong: int

    def __str__(self) -> str:
        where = f"rank {self.rank}, row {self.row}, column {self.column} after {self.products} matrix products"
        return f"{where}: got {self.got}, expected {self.expected}; {self.wrong} wrong on this rank"


class Disagreement(_Failure, frozen=True, tag="disagreement"):
    """Ranks hold different results, each of which is within the bound: replicas trained with them would drift apart."""

    rank: int

    def __str__(self) -> str:
        return f"rank {self.rank} holds other bits than rank 0, though both are within the bound"


class WeightMismatch(_Failure, frozen=True, tag="unlearned"):
    """The first weight of an update of a training run that does not follow from its gradients."""

    rank: int  # that made the update
    update: str  # of which weights
    index: int
    got: str  # empty where there is no value to compare
    expected: str
    bound: float  # distance that rounding alone explains
    wrong: int

    def __str__(self) -> str:
        if not self.got:
            return f"rank {self.rank}, update {self.update}: {self.expected}"
        where = f"rank {self.rank}, update {self.update}, weight {self.index}"
        return f"{where}: got {self.got}, expected {self.expected} within {self.bound:.1g}; {self.wrong} weights wrong"


CheckFailure = Mismatch | Overrun | Implausible | GemmMismatch | Disagreement | WeightMismatch
"""Anything that makes a result wrong; in a run file its field `kind` tells which."""
