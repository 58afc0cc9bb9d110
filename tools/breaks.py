"""Executions of the lesson's broken kernels: collbench/commands/lesson/assets/breaks.json.

For each change of the chapter "Break it", the memory model finds an execution with a wrong result.  The model allows
the execution with the change and forbids it without the change.  The file describes it in the words of breaks.toml.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from collbench.commands.lesson import ASSETS
from collbench.commands.lesson.breaks import TEXTS
from collbench.commands.lesson.content import Litmus
from tools.memory_model.fragments import FRAGMENTS, WEAKENINGS, Fragment, in_one_thread
from tools.memory_model.program import ACQUIRES, RELEASES, Operation
from tools.memory_model.ptx import Witness, reachable, witness

_WANTED = re.compile(r"(\w+) != (\d+)")  # in the outcome of a fragment: a register, and its right value
_SENTENCES = TEXTS["says"]
_COMPARISON = re.compile(r" [=>]= \d+$")  # an addition of this project's notation to PTX


@dataclass(frozen=True)
class Experiment:
    """A question to the memory model."""

    name: str
    variant: str  # a weakening of a fragment
    wrong: str  # the wrong result, in words
    places: Mapping[str, str]  # names of the memory, in words
    outcome: str = ""  # one wrong outcome of the fragment, to be shown; "" for any

    @staticmethod
    def all() -> tuple["Experiment", ...]:
        return msgspec.convert(TEXTS["break"], tuple[Experiment, ...])


def explained(experiment: Experiment) -> Litmus:
    """Return an execution that goes wrong.

    ValueError if the protocol goes wrong without the change, or not with it.
    """
    weakening = next(each for each in WEAKENINGS if each.name == experiment.variant)
    whole = next(each for each in FRAGMENTS if each.name == weakening.fragment)
    weak = in_one_thread(weakening.of(whole))
    if any(reachable(each.threads, whole.outcome, whole.initially) for each in (whole, in_one_thread(whole))):
        raise ValueError(f"{experiment.name}: {whole.name} goes wrong as it is")
    if reachable(weak.threads, f"({experiment.outcome or 'False'}) and not ({whole.outcome})", whole.initially):
        raise ValueError(f"{experiment.name}: {experiment.outcome} is no part of {whole.outcome}")
    found = witness(weak.threads, experiment.outcome or whole.outcome, whole.initially)
    if found is None:
        raise ValueError(f"{experiment.name}: {weakening.name} does not go wrong")
    return _litmus(weak, found, experiment)


def _litmus(fragment: Fragment, found: Witness, experiment: Experiment) -> Litmus:
    wanted = {name: int(value) for name, value in _WANTED.findall(fragment.outcome)}
    said = _Words(found, experiment.places, wanted)
    ops = [op for op in found.execution.ops if op.thread >= 0]
    threads = []
    for thread, text in enumerate(fragment.threads):
        codes = [code.strip() for code in text.partition(":")[2].split(";")]
        own = [op for op in ops if op.thread == thread]
        threads.append((said.rank(own[0]), tuple(map(said.instruction, own, codes))))
    order = in_order(found)
    steps = tuple(said.step(found.execution.ops[number], order[:at]) for at, number in enumerate(order))
    return {"threads": threads, "steps": steps, "outcome": experiment.wrong}


class _Words:
    """Describes operations in the words of breaks.toml."""

    def __init__(self, found: Witness, places: Mapping[str, str], wanted: Mapping[str, int]) -> None:
        self._found, self._places, self._wanted = found, places, wanted

    def rank(self, op: Operation) -> str:
        return _SENTENCES["litmus"]["rank"].format(rank=op.place[0])

    def instruction(self, op: Operation, code: str) -> str:
        words = _SENTENCES["instruction"][_kind(op)].format(**self._facts(op))
        return _SENTENCES["litmus"]["instruction"].format(words=words, code=_COMPARISON.sub("", code))

    def step(self, op: Operation, earlier: list[int]) -> Mapping[str, Any]:
        """Describe how an operation becomes visible; `earlier` are the operations before it."""
        facts, template = self._facts(op), _SENTENCES["step"][_kind(op)]
        wanted = self._wanted.get(op.operands[0]) if op.kind == "read" else None
        wrong = wanted not in (None, self._found.values[op.number, 0])
        if wrong:
            template = _SENTENCES["litmus"]["wrong"]
        elif op.kind == "write" and any((op.number, other) in self._found.execution.program.po for other in earlier):
            template = _SENTENCES["litmus"]["late"]
        words = _sentence(template.format(wanted=wanted, **facts))
        return {"thread": op.thread, "instruction": op.step // 2, "words": words, "wrong": wrong}

    def _facts(self, op: Operation) -> dict[str, Any]:
        numbers = [self._found.values[op.number, lane] for lane in range(len(op.operands))]
        packet = _SENTENCES["litmus"]["packet"]
        value = numbers[0] if len(numbers) == 1 else packet.format(data=numbers[0], flag=numbers[1])
        return {"rank": self.rank(op), "place": self._places[op.location], "value": value, "until": op.until[3:]}


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:]


def _kind(op: Operation) -> str:
    """Return the name of the template for an operation: an ordered access without data is a flag's."""
    packet = "-packet" if len(op.operands) > 1 else ""
    if op.kind == "read":
        return ("wait" if op.until else "read") + packet
    return "set" if op.strong and not packet else "write" + packet


def in_order(found: Witness) -> list[int]:
    """Return the accesses in an order that explains the execution.

    A write becomes visible before it is read, and a read comes before the writes that it missed.  Return one of these
    orders, with the fewest changes to program order and none that an acquire or release forbids.
    """
    execution = found.execution
    ops = {op.number: op for op in execution.ops if op.thread >= 0}
    seen = execution.reads_from | found.coherence | execution.from_reads(found.coherence)
    needed = {pair for pair in seen if ops.keys() >= set(pair)}
    needed |= {(a, b) for a, b in execution.program.po if _fixed(ops[a], ops[b])}

    @cache
    def best(left: frozenset[int]) -> tuple[int, tuple[int, ...]]:
        """Return the number of pairs out of program order in the best order of these operations, and that order."""
        orders = []
        for op in left:
            later = left - {op}
            if not any((other, op) in needed for other in later):
                late, order = best(later)
                late += sum((other, op) in execution.program.po for other in later)
                orders.append((late, (op, *order)))
        return min(orders) if left else (0, ())

    return list(best(frozenset(ops))[1])


def _fixed(before: Operation, after: Operation) -> bool:
    return before.order in ACQUIRES or after.order in RELEASES or before.location == after.location


def written() -> Iterator[tuple[Path, bytes]]:
    found = {each.name: explained(each) for each in Experiment.all()}
    yield ASSETS / "breaks.json", msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"
