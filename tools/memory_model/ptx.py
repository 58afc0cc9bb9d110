"""The PTX memory consistency model, decided for small programs by trying every execution.

Section numbers are those of chapter 8 of recent versions of the PTX ISA.  Where its text is open, the formalisations of
Lustig, Sahasrabuddhe and Giroux (ASPLOS 2019), of Lustig, Cooksey and Giroux for proxies (ISCA 2022) and of Dartagnan
(cat/ptx-v7.5.cat) were consulted.  docs/kernels.md names the choices.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from tools.memory_model.program import Pairs, Program

Slot = tuple[int, int]  # an operation and one of its lanes
Choice = dict[Slot, int]  # by lane of a read, the write of its value


class ThinAirError(Exception):
    """A value depends on itself."""


class Execution:
    """A program with a choice of the write that each read takes its value from, and of the order of fence.sc."""

    def __init__(self, program: Program, rf: Choice, sc: Pairs) -> None:
        self.program, self.ops, self.rf, self.sc = program, program.ops, rf, sc
        self.reads_from = {(write, read) for (read, _), write in rf.items()}

    @cached_property
    def observation(self) -> Pairs:
        """Pairs of a write and a morally strong read of all of it, perhaps through atomic operations (8.9.2)."""
        sources = defaultdict(set)
        for (read, _), write in self.rf.items():
            sources[read].add(write)
        whole = {(write, read) for write, read in self.reads_from if sources[read] == {write}}
        chains = closure((whole & self.program.morally_strong) | self.program.atoms)
        return {(a, b) for a, b in chains if self.ops[a].kind == "write" and self.ops[b].kind == "read"}

    @cached_property
    def base(self) -> Pairs:
        """Base causality order (8.9.5)."""
        return closure(self.program.po.union(*(rule(self) for rule in SYNCHRONISES.values())))

    @cached_property
    def causality(self) -> Pairs:
        """Causality order, by proxy-preserved base causality order (8.9.5)."""
        fences = [op.number for op in self.ops if op.kind == "alias"]
        kept = set()
        for a, b in self.base:
            x, y = self.ops[a], self.ops[b]
            fenced = any({(a, fence), (fence, b)} <= self.base for fence in fences)
            if x.memory and y.memory and (x.address == y.address or (x.location == y.location and fenced)):
                kept.add((a, b))
        return kept | {(w, b) for w, read in self.observation for a, b in kept if a == read}

    @cached_property
    def written(self) -> Pairs:
        """Causality order between writes."""
        return {(a, b) for a, b in self.causality if self.ops[a].kind == self.ops[b].kind == "write"}

    def coherence_orders(self, last: Pairs) -> Iterator[Pairs]:
        """Return the least coherence orders (8.9.6); larger ones only forbid more.

        They order morally strong writes in every way, and others by causality or not at all; `last` is given.
        """
        strong = {(a, b) for a, b in self.program.morally_strong if self.ops[a].kind == self.ops[b].kind == "write"}
        first = {(ws[-1], w) for ws in self.program.writes.values() for w in ws[:-1]}  # memory is initialised first
        for chosen in orientations(strong):
            order = closure(first | last | chosen)
            yield closure(order | {(a, b) for a, b in self.written if (b, a) not in order})

    def from_reads(self, co: Pairs) -> Pairs:
        """Return pairs of a read and a later write than the one that it read (8.9.7)."""
        return {(read, after) for (read, _), write in self.rf.items() for before, after in co if before == write}


def _release_acquire(x: Execution) -> Pairs:
    """Pairs of a release pattern and the acquire pattern that observes it, with morally strong ends."""
    ends = {(a, b) for a, w in x.program.releases for r, b in x.program.acquires if (w, r) in x.observation}
    return ends & x.program.morally_strong


def _single_copy(x: Execution, co: Pairs) -> bool:
    """Return whether no morally strong read takes one part from a write and another from an earlier write."""
    taken = [(read, write) for (read, _), write in x.rf.items()]
    strong = [(r, w) for r, w in taken if (r, w) in x.program.morally_strong]
    return not any((old, w) in co for r, w in strong for read, old in taken if read == r)


def _atomicity(x: Execution, co: Pairs) -> bool:
    """Return whether no morally strong write comes between the read and the write of an atomic operation."""
    between = x.from_reads(co) & x.program.morally_strong
    before = co & x.program.morally_strong
    return not any((w, write) in before for read, write in x.program.atoms for r, w in between if r == read)


def _sc_per_location(x: Execution, co: Pairs) -> bool:
    """Return whether program order and communication of pairwise morally strong operations have no cycle."""
    strong, reached = x.program.morally_strong, defaultdict(set)
    for a, b in strong & (x.program.po | x.reads_from | co | x.from_reads(co)):
        if x.ops[a].memory and x.ops[b].memory:
            reached[a].add(b)

    def closes(path: list[int]) -> bool:
        ahead = reached[path[-1]]
        steps = (op for op in ahead if op not in path and strong.issuperset(product([op], path)))
        return path[0] in ahead or any(closes([*path, op]) for op in steps)

    return not any(closes([op.number]) for op in x.ops)


def _causality(x: Execution, co: Pairs) -> bool:
    """Return whether no read takes from a later write, or from a write that an earlier write has replaced."""
    communication = x.reads_from | x.from_reads(co)
    return not any((b, a) in x.causality for a, b in communication)


# The ways in which operations of different threads become ordered (8.9.4).
SYNCHRONISES: dict[str, Callable[[Execution], Pairs]] = {
    "fence.sc": lambda x: x.sc,
    "bar.sync": lambda x: x.program.barriers,
    "release-acquire": _release_acquire,
}

# The axioms for an execution and its coherence order (8.10); `values` has the one on thin air.
AXIOMS: dict[str, Callable[[Execution, Pairs], bool]] = {
    "coherence": lambda x, co: x.written <= co and all(a != b for a, b in co),
    "fence-sc": lambda x, co: not any((b, a) in x.base for a, b in x.sc),
    "single-copy atomicity": _single_copy,
    "atomicity": _atomicity,
    "sc-per-location": _sc_per_location,
    "causality": _causality,
}


@dataclass(frozen=True)
class Witness:
    """An execution that the model allows, with a coherence order and the values of its accesses."""

    execution: Execution
    coherence: Pairs
    values: dict[Slot, int]


def reachable(threads: Iterable[str] | Program, outcome: str, initially: Mapping[str, int] | None = None) -> bool:
    """Return whether the model allows an execution with this outcome; see `witness`."""
    return witness(threads, outcome, initially) is not None


def witness(
    threads: Iterable[str] | Program, outcome: str, initially: Mapping[str, int] | None = None
) -> Witness | None:
    """Return the first allowed execution with this outcome, or None.

    The outcome is an expression of registers, and of scalar locations for the value of their last write (all others
    then precede it in coherence order).  Memory is `initially` zero.  A Program may be passed for several outcomes.
    ValueError for unknown syntax.
    """
    program = threads if isinstance(threads, Program) else Program(threads, initially)
    code = compile(outcome, "outcome", "eval")
    observed = sorted(set(code.co_names) & set(program.writes))
    lanes = [(op, lane) for op in program.reads for lane in range(len(op.operands))]
    fences = [op.number for op in program.ops if op.kind == "fence" and op.order == "sc"]
    orders = list(orientations({(a, b) for a, b in program.morally_strong if a in fences and b in fences}))
    for sources in product(*(program.writes[op.location] for op, _ in lanes)):
        rf = {(op.number, lane): source for (op, lane), source in zip(lanes, sources, strict=True)}
        found = values(program, rf)
        if found is None:
            continue
        for lasts in product(*(program.writes[location] for location in observed)):
            names = {name: found[slot] for name, slot in program.registers.items()}
            names |= {location: found[last, 0] for location, last in zip(observed, lasts, strict=True)}
            if not eval(code, {"__builtins__": {}}, names):
                continue
            last = {(a, b) for b in lasts for a in program.writes[program.ops[b].location] if a != b}
            for execution in (Execution(program, rf, sc) for sc in orders):
                if (coherence := _allowed(execution, last)) is not None:
                    return Witness(execution, coherence, found)
    return None


def _allowed(execution: Execution, last: Pairs) -> Pairs | None:
    """Return the first coherence order that fulfils all axioms."""
    found = execution.coherence_orders(last)
    for co in found:
        if all(axiom(execution, co) for axiom in AXIOMS.values()):
            return co
    return None


def values(program: Program, rf: Choice) -> dict[Slot, int] | None:
    """Return the value of each lane of each access; None if a poll did not end or a value comes from thin air."""
    found: dict[Slot, int] = {}

    def value(slot: Slot, pending: tuple[Slot, ...] = ()) -> int:
        number, lane = slot
        op, text, beyond = program.ops[number], program.ops[number].operands[lane], (*pending, slot)
        if slot in pending:
            raise ThinAirError  # 8.10.4
        if slot not in found:
            if op.kind == "read":
                found[slot] = value((rf[slot], lane), beyond)
            else:
                found[slot] = value(program.registers[text], beyond) if text in program.registers else int(text)
            if op.atomic:
                found[slot] += value((number - 1, lane), beyond)
        return found[slot]

    try:
        for op in program.ops:
            for lane in range(len(op.operands)):
                value((op.number, lane))
    except ThinAirError:
        return None
    ended = all(_ended(op.until, found[op.number, len(op.operands) - 1]) for op in program.reads)
    return found if ended else None


def _ended(until: str, number: int) -> bool:
    """Return whether a poll ends with the value that it read."""
    wanted = int(until[2:]) if until else number
    return number >= wanted if until.startswith(">") else number == wanted


def orientations(pairs: Pairs) -> Iterator[Pairs]:
    """Yield every transitive order without cycles that relates each of these symmetric pairs."""
    ways = [((a, b), (b, a)) for a, b in sorted(pairs) if a < b]
    for chosen in product(*ways):
        order = closure(set(chosen))
        if all(a != b for a, b in order):
            yield order


def closure(pairs: Pairs) -> Pairs:
    """Return the transitive closure."""
    after: dict[int, set[int]] = defaultdict(set)
    for a, b in pairs:
        after[a].add(b)
    for middle in list(after):
        for reached in after.values():
            if middle in reached:
                reached |= after[middle]
    return {(a, b) for a, reached in after.items() for b in reached}
