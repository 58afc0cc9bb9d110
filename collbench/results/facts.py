"""Facts about a result: its state, its note and its check."""

import re
from dataclasses import fields, replace
from enum import Enum

from collbench.records import Record


class Outcome(Enum):
    """The outcome of a case."""

    OK = "ok"
    WRONG = "wrong"
    FAILED = "failed"
    SKIPPED = "skipped"
    PREDICTED = "predicted"
    DISTURBED = "disturbed"

    @property
    def alarming(self) -> bool:
        """Whether to highlight it: failures, and times that describe the machine more than the code."""
        return self.bad or self is Outcome.DISTURBED

    @property
    def bad(self) -> bool:
        """Whether something is broken."""
        return self in (Outcome.WRONG, Outcome.FAILED)


def family(implementation: str) -> str:
    """Return what implementations have in common that differ in their library only: `mpi` of `mpi@openmpi`."""
    return implementation.partition("@")[0]


def labelled(implementation: str, library: str) -> str:
    """Return the implementation's name with its library: `mpi: MPICH 5.0.2`, or `nccl: 2.30.4` for NCCL itself."""
    if not library:
        return implementation
    product, _, version = library.partition(" ")

    # Do not repeat a library's name: `nccl@symmetric@2.30.7` becomes
    # `nccl@symmetric: 2.30.7`.
    if product.lower() == family(implementation) and version:
        return f"{implementation.removesuffix(f'@{version}')}: {version}"
    return f"{family(implementation)}: {library}"


PACED = "the GPUs waited for the host, which enqueues too slowly: compute more in a step, or a process each (mpirun)"


class Sharing(Record, frozen=True):
    """More ranks than GPUs: messages between ranks of one GPU take no bus."""

    ranks: int
    gpus: int
    processes: bool = False  # whether each rank is a process; processes on one GPU take turns

    def __str__(self) -> str:
        who = "processes" if self.processes else "ranks"
        return f"{self.ranks} {who} share {self.gpus} GPU{'s' if self.gpus > 1 else ''}"


class Note(Record, frozen=True):
    """Caveats of a number; `str` is their text, empty if there are none."""

    shared: Sharing | None = None
    oversubscribed: bool = False  # more ranks than cores
    spin: str = ""  # how waiting ranks spin, if the user chose it
    picked: str = ""  # the implementation that `auto` selected
    remarks: tuple[str, ...] = ()  # other caveats, in words
    bound: bool = False  # a predicted lower bound without measurements; never wins a comparison
    paced: bool = False  # limited by the host, which enqueued more slowly than the devices executed
    buffers: str = ""  # allocation and registration of a library's buffers

    @staticmethod
    def of(*remarks: str) -> "Note":
        """Return a note of the remarks that are not empty."""
        return Note(remarks=tuple(filter(None, remarks)))

    def __or__(self, other: "Note") -> "Note":
        """Combine two notes."""
        if other == NO_NOTE:
            return self
        # Take each fact from the note that has it, and the remarks of both.
        either = {field.name: getattr(self, field.name) or getattr(other, field.name) for field in fields(self)}
        return Note(**either | {"remarks": self.remarks + other.remarks})

    @property
    def brief(self) -> "Note":
        """The note of a row without facts common to all rows: sharing, its NCCL variables, a library's buffers."""
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
"""No caveats."""
_SHARED = re.compile(r"(\d{1,9}) (ranks|processes) share (\d{1,9}) GPUs?")
_CORES = re.compile(r"(oversubscribed)?(?:, )?(?:--spin (\w+))?")


def note_of(text: str) -> Note:
    """Parse a note from its text; unrecognised parts become remarks."""
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
    """A failure of a check: wrong data, memory outside buffers, or an impossible time; `str` describes it."""

    wrong = 0  # known wrong elements of the result, on one rank


class Mismatch(_Failure, frozen=True, tag="mismatch"):
    """The first wrong element of a result (lowest rank, earliest call, lowest index), and their number there."""

    rank: int
    index: int  # element of the receive buffer
    chunk: int  # index of its chunk, one for each rank; in a ring, chunk = rank + step
    got: str  # empty if only known to differ
    expected: str
    wrong: int
    call: int | None = None  # of several back-to-back calls, counted from 0
    calls: int | None = None  # number of these calls
    bound: str | None = None  # allowed distance, if the implementation is not exact

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
    buffer: str  # the buffer next to them
    offset: int  # of the nearest changed byte, from the buffer's end; negative: from its start
    nbytes: int  # changed

    def __str__(self) -> str:
        changed = f"{self.nbytes} byte{'s' if self.nbytes > 1 else ''}"
        where = f"before the start of the {self.buffer}" if self.offset < 0 else f"past the end of the {self.buffer}"
        return f"rank {self.rank}: {changed} written {where}, the nearest at {self.offset:+}"


class Implausible(_Failure, frozen=True, tag="implausible"):
    """A time shorter than any machine needs, with the calculation."""

    seconds: float  # of an operation, as measured
    reason: str

    def __str__(self) -> str:
        return f"implausible: {self.reason}"


class GemmMismatch(_Failure, frozen=True, tag="miscomputed"):
    """The first wrong element of the matrix that a rank computed in steps (lowest rank, row, column)."""

    rank: int
    products: int  # products that the rank should have computed
    row: int
    column: int
    got: str
    expected: str
    wrong: int

    def __str__(self) -> str:
        where = f"rank {self.rank}, row {self.row}, column {self.column} after {self.products} matrix products"
        return f"{where}: got {self.got}, expected {self.expected}; {self.wrong} wrong on this rank"


class Disagreement(_Failure, frozen=True, tag="disagreement"):
    """Ranks hold different results, each within the bound: trained replicas would drift apart."""

    rank: int

    def __str__(self) -> str:
        return f"rank {self.rank} holds other bits than rank 0, though both are within the bound"


class WeightMismatch(_Failure, frozen=True, tag="unlearned"):
    """The first weight of a training update that does not follow from its gradients."""

    rank: int  # that made the update
    update: str  # of which weights
    index: int
    got: str  # empty without a value to compare
    expected: str
    bound: float  # largest distance due to rounding
    wrong: int

    def __str__(self) -> str:
        if not self.got:
            return f"rank {self.rank}, update {self.update}: {self.expected}"
        where = f"rank {self.rank}, update {self.update}, weight {self.index}"
        return f"{where}: got {self.got}, expected {self.expected} within {self.bound:.1g}; {self.wrong} weights wrong"


CheckFailure = Mismatch | Overrun | Implausible | GemmMismatch | Disagreement | WeightMismatch
"""Any failure of a check; in a run file its field `kind` names the class."""
