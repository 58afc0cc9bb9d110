"""Small parallel programs in PTX, with one line of text per thread: its place, then its instructions.

    0.0: st [data], 7; bar.sync 0; st.release.sys [flag], 1
    1.0: ld.acquire.sys [flag] >= 1; ld r, [data]

`1.0:` is CTA 0 of GPU 1.  A load followed by a comparison is the last one of a poll: executions in which the comparison
of its last lane fails do not count.  `[x@y]` is location x at another virtual address.  `[x|y]` is the multicast
address of x and y, for `multimem` only: `multimem.ld_reduce` has a register for each, and `multimem.st` stores the same
to all, in no order, through an alias `@multicast` of each.  `.v2` and `.v4` access the elements x.0, x.1... in no
order; a `.b64` element has two 32-bit lanes with an operand each.  `atom.add` and `red.add` are the only atomic
operations.  Registers are unique in a program.

Section numbers are those of chapter 8 of recent versions of the PTX ISA.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

Pairs = set[tuple[int, int]]  # a relation between operations, by their numbers

INSTRUCTION = re.compile(
    r"(?P<multimem>multimem\.)?(?P<name>ld|st|atom|red|fence|bar)(?P<dots>(_reduce)?[.\w]*) *(?P<before>[^\[]*)"
    r"(\[(?P<address>[\w@|]+)\] *(?P<until>[=>]= *\d+)?(?P<after>.*))?"
)
NUMBER = re.compile(r"-?\d+")
ORDERS = {"weak", "relaxed", "acquire", "release", "acq_rel", "sc", "volatile"}
SCOPES = {"cta", "gpu", "sys"}
ELEMENTS = {"v2": 2, "v4": 4}
OTHERS = {"", "u32", "b64", "add", "sync", "proxy", "alias", *ELEMENTS}
DEFAULT_ORDERS = {"ld": "weak", "st": "weak", "fence": "acq_rel"}
RELEASES, ACQUIRES = {"release", "acq_rel", "sc"}, {"acquire", "acq_rel", "sc"}


@dataclass(frozen=True)
class Operation:
    """A scalar memory operation, a fence or a barrier (8.2, 8.4)."""

    kind: str  # read, write, fence, alias (a proxy fence) or bar
    order: str = "weak"
    scope: str = "gpu"
    address: str = ""  # a virtual address; of a bar: its number
    operands: tuple[str, ...] = ()  # of each lane: the destination register, or the written value
    until: str = ""  # of a read: a comparison that holds
    atomic: bool = False  # whether it is the write of an atomic operation; the operation before it is the read
    step: int = 0  # the order in its thread; elements of one vector have the same (8.2.4)
    thread: int = -1  # -1: the writes that initialise memory (8.2.6)
    place: tuple[str, ...] = ()  # gpu, cta
    number: int = 0

    @property
    def location(self) -> str:
        """Physical memory: addresses that differ after the @ are aliases (8.2.2)."""
        return self.address.partition("@")[0]

    @property
    def memory(self) -> bool:
        return self.kind in ("read", "write")

    @property
    def strong(self) -> bool:
        return self.kind in ("read", "write", "fence") and self.order != "weak"

    def reaches(self, other: "Operation") -> bool:
        """Return whether the operation's scope includes the thread of another (8.5)."""
        shared = {"cta": 2, "gpu": 1, "sys": 0}[self.scope]
        return self.place[:shared] == other.place[:shared]


class Program:
    """The operations of all threads, and the relations between them that no execution changes.

    ValueError for unknown syntax.
    """

    def __init__(self, threads: Iterable[str], initially: Mapping[str, int] | None = None) -> None:
        self.ops: list[Operation] = []
        shapes: dict[str, object] = {}
        for thread, text in enumerate(threads):
            where, _, code = text.partition(":")
            place = tuple(where.strip().split("."))
            for step, instruction in enumerate(code.split(";")):
                for op in _operations(instruction.strip(), shapes):
                    number, place_in_order = len(self.ops), 2 * step + op.atomic
                    self.ops.append(replace(op, number=number, thread=thread, place=place, step=place_in_order))
        for location, lanes in {op.location: len(op.operands) for op in self.ops if op.memory}.items():
            value = str((initially or {}).get(location, 0))
            first = Operation("write", address=location, operands=(value,) * lanes, number=len(self.ops))
            self.ops.append(first)
        self.reads = [op for op in self.ops if op.kind == "read"]
        self.writes: dict[str, list[int]] = defaultdict(list)  # of each location; the initial one is the last
        for op in self.ops:
            if op.kind == "write":
                self.writes[op.location].append(op.number)
        self.registers = self._registers()

    def _registers(self) -> dict[str, tuple[int, int]]:
        """Where each register is loaded: the read and its lane."""
        slots = [(name, (op.number, lane)) for op in self.reads for lane, name in enumerate(op.operands) if name]
        registers = dict(slots)
        if len(registers) < len(slots):
            raise ValueError("a register is loaded twice")
        stored = [(op, name) for op in self.ops if op.kind == "write" for name in op.operands]
        for op, name in stored:
            if not NUMBER.fullmatch(name) and (name not in registers or (registers[name][0], op.number) not in self.po):
                raise ValueError(f"{name} is not loaded before it is stored")
        return registers

    @cached_property
    def po(self) -> Pairs:
        """Program order (8.9.1)."""
        pairs = product(self.ops, self.ops)
        return {(a.number, b.number) for a, b in pairs if a.thread == b.thread >= 0 and a.step < b.step}

    @cached_property
    def atoms(self) -> Pairs:
        """The read and the write of each atomic operation."""
        return {(op.number - 1, op.number) for op in self.ops if op.atomic}

    @cached_property
    def morally_strong(self) -> Pairs:
        """Return whether both are in one thread, or strong and in reach; accesses need the same address (8.7)."""

        def related(a: Operation, b: Operation) -> bool:
            if a.memory and b.memory and a.address != b.address:
                return False
            together = (a.number, b.number) in self.po or (b.number, a.number) in self.po
            return together or (a.strong and b.strong and a.reaches(b) and b.reaches(a))

        able = [op for op in self.ops if (op.memory or op.kind == "fence") and op.thread >= 0]
        return {(a.number, b.number) for a, b in product(able, able) if a is not b and related(a, b)}

    @cached_property
    def barriers(self) -> Pairs:
        """Pairs of arrivals at a barrier in the same round (8.9.4)."""
        rounds: dict[object, list[int]] = defaultdict(list)
        arrivals: dict[object, int] = defaultdict(int)
        for op in self.ops:
            if op.kind == "bar":
                arrivals[op.thread, op.address] += 1
                rounds[op.place, op.address, arrivals[op.thread, op.address]].append(op.number)
        return {(a, b) for met in rounds.values() for a, b in product(met, met) if a != b}

    @cached_property
    def releases(self) -> Pairs:
        """Release patterns: their first operation, and the write to be observed (8.8)."""
        return set(self._patterns("write", RELEASES, self.po))

    @cached_property
    def acquires(self) -> Pairs:
        """Acquire patterns: the observing read, and their last operation (8.8)."""
        reverse = {(b, a) for a, b in self.po}
        return {(read, end) for end, read in self._patterns("read", ACQUIRES, reverse)}

    def _patterns(self, kind: str, orders: set[str], ordered: Pairs) -> Iterator[tuple[int, int]]:
        """Return the ends of an order: the operation, or a strong access beyond it; a reduction is its own read."""
        for end in (op for op in self.ops if op.order in orders):
            if end.kind == kind:
                yield end.number, end.number
            for access in (op for op in self.ops if (end.number, op.number) in ordered and op.kind == kind):
                matches = end.kind == "fence" or (end.kind == kind and end.address == access.address)
                if matches and access.strong and access.order != "reduction":
                    yield end.number, access.number


def _operations(text: str, shapes: dict[str, object]) -> Iterator[Operation]:
    """Return the operations of one instruction; `shapes` records how each location is accessed."""
    match = INSTRUCTION.fullmatch(text)
    words = set(match["dots"].split(".")) if match else set()
    if match is None or not words <= ORDERS | SCOPES | OTHERS | ({"_reduce"} if match["multimem"] else set()):
        raise ValueError(f"not understood: {text}")
    name, before, address = match["name"], match["before"].strip(" ,"), match["address"]
    if bool(match["multimem"]) != ("|" in (address or "")):
        raise ValueError(f"a multicast address is for multimem only, and multimem for such an address: {text}")
    order = next(iter(words & ORDERS), DEFAULT_ORDERS.get(name, "relaxed"))
    scope = next(iter(words & SCOPES), "gpu")
    if order == "volatile":  # equivalent to relaxed at system scope (8.4.2)
        order, scope = "relaxed", "sys"
    if match["multimem"]:
        yield from _multimem(name, order, scope, address.split("|"), before if name == "ld" else match["after"], shapes)
        return
    if not address:
        yield Operation("alias" if "alias" in words else name, order, scope, before)
        return
    elements = next((count for word, count in ELEMENTS.items() if word in words), 1)
    lanes = 2 if "b64" in words else 1
    if shapes.setdefault(address.partition("@")[0], (elements, lanes)) != (elements, lanes):
        raise ValueError(f"not the size of earlier accesses, so that the axioms do not apply (8.7.2): {text}")
    operands = re.findall(r"-?\w+", before if name == "ld" else match["after"]) or [""] * elements * lanes
    if len(operands) != elements * lanes:
        raise ValueError(f"{elements * lanes} operands wanted: {text}")
    if name in ("atom", "red"):
        taken = "acquire" if order in ACQUIRES else "relaxed"
        given = "release" if order in RELEASES else "relaxed"
        yield Operation("read", "reduction" if name == "red" else taken, scope, address, (before,))
        yield Operation("write", given, scope, address, tuple(operands), atomic=True)
        return
    for i in range(elements):
        element, own = f"{address}.{i}" if elements > 1 else address, tuple(operands[i * lanes : (i + 1) * lanes])
        yield Operation("read" if name == "ld" else "write", order, scope, element, own, match["until"] or "")


def _multimem(
    name: str, order: str, scope: str, locations: list[str], operands: str, shapes: dict[str, object]
) -> Iterator[Operation]:
    """Return an access to each location behind a multicast address, all in the same step."""
    names = re.findall(r"-?\w+", operands)
    registers = names if name == "ld" else names * len(locations)
    if name not in ("ld", "st") or len(registers) != len(locations):
        raise ValueError(f"a register for each of {', '.join(locations)} wanted, or one value for all: {operands}")
    for location, register in zip(locations, registers, strict=True):
        if shapes.setdefault(location, (1, 1)) != (1, 1):
            raise ValueError(f"not the size of earlier accesses, so that the axioms do not apply (8.7.2): {location}")
        yield Operation("read" if name == "ld" else "write", order, scope, f"{location}@multicast", (register,))
