"""Asks the memory model about the changes of the lesson's chapter "Break it", and writes what it says.

    python -m tools.breaks

The file is collbench/lesson/assets/breaks.json: the model's verdict on each change, and an execution that it allows, with
the words of breaks.toml.  A test holds the file against what this writes.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from collbench.lesson.breaks import SAYS, VERDICTS, Experiment, Verdict, experiments
from collbench.lesson.content import Litmus, Step
from tools.memory_model.fragments import FRAGMENTS, WEAKENINGS, Fragment, in_one_thread
from tools.memory_model.program import ACQUIRES, RELEASES, Operation, Pairs
from tools.memory_model.ptx import Witness, reachable, witness

_WANTED = re.compile(r"(\w+) != (\d+)")  # in the outcome of a fragment: a register, and the value that is right
_COMPARISON = re.compile(r" [=>]= \d+$")  # what this project's notation adds to PTX


def verdict(experiment: Experiment) -> Verdict:
    """What the model says, and a witness; ValueError if the protocol as it is can go wrong, or the changed one cannot."""
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
    says = SAYS["model"]
    model = says["verdict"].format(whole=says["never"], weak=says["can"], wrong=whole.wrong)
    return Verdict(model, _litmus(weak, found, experiment.places))


def _litmus(fragment: Fragment, found: Witness, places: Mapping[str, str]) -> Litmus:
    """The program and the execution in words."""
    said = _Words(found, places, {name: int(value) for name, value in _WANTED.findall(fragment.outcome)})
    ops = [op for op in found.execution.ops if op.thread >= 0]
    threads = []
    for thread, text in enumerate(fragment.threads):
        codes = [code.strip() for code in text.partition(":")[2].split(";")]
        own = [op for op in ops if op.thread == thread]
        threads.append((said.rank(own[0]), tuple(map(said.instruction, own, codes))))
    order = in_order(found)
    steps = tuple(said.step(found.execution.ops[number], order[:at]) for at, number in enumerate(order))
    return Litmus(tuple(threads), steps, fragment.wrong)


class _Words:
    """What operations do, in the words of breaks.toml."""

    def __init__(self, found: Witness, places: Mapping[str, str], wanted: Mapping[str, int]) -> None:
        self._found, self._places, self._wanted = found, places, wanted

    def rank(self, op: Operation) -> str:
        return SAYS["litmus"]["rank"].format(rank=op.place[0])

    def instruction(self, op: Operation, code: str) -> str:
        words = SAYS["instruction"][_kind(op)].format(**self._facts(op))
        return SAYS["litmus"]["instruction"].format(words=words, code=_COMPARISON.sub("", code))

    def step(self, op: Operation, earlier: list[int]) -> Step:
        """`earlier`: operations that came before it."""
        facts, template = self._facts(op), SAYS["step"][_kind(op)]
        wanted = self._wanted.get(op.operands[0]) if op.kind == "read" else None
        wrong = wanted not in (None, self._found.values[op.number, 0])
        if wrong:
            template = SAYS["litmus"]["wrong"]
        elif op.kind == "write" and any((op.number, other) in self._found.execution.program.po for other in earlier):
            template = SAYS["litmus"]["late"]
        return Step(op.thread, op.step // 2, template.format(wanted=wanted, **facts), wrong)

    def _facts(self, op: Operation) -> dict[str, Any]:
        numbers = [self._found.values[op.number, lane] for lane in range(len(op.operands))]
        packet = SAYS["litmus"]["packet"]
        value = numbers[0] if len(numbers) == 1 else packet.format(data=numbers[0], flag=numbers[1])
        until = packet.format(data="data", flag=op.until[3:]) if len(numbers) > 1 else op.until[3:]
        return {"rank": self.rank(op), "place": self._places[op.location], "value": value, "until": until}


def _kind(op: Operation) -> str:
    """Which template fits: flags are what is accessed with an order, unless data comes with it."""
    if op.kind == "read":
        return "wait" if op.until else "read"
    return "set" if op.strong and len(op.operands) == 1 else "write"


def in_order(found: Witness) -> list[int]:
    """The accesses in an order that explains the execution: writes become visible before they are read.

    And a read comes before the writes that it missed.  Among such orders the first of those that leave the order of the
    program least, and never where an acquire or a release forbids it.
    """
    execution = found.execution
    ops = {op.number: op for op in execution.ops if op.thread >= 0}
    needed = {
        (a, b)
        for a, b in execution.reads_from | found.coherence | execution.from_reads(found.coherence)
        if {a, b} <= ops.keys()
    }
    needed |= {(a, b) for a, b in execution.program.po if _fixed(ops[a], ops[b])}
    return _best(frozenset(ops), needed, execution.program.po)


def _fixed(before: Operation, after: Operation) -> bool:
    return before.order in ACQUIRES or after.order in RELEASES or before.location == after.location


def _best(ops: frozenset[int], needed: Pairs, wished: Pairs) -> list[int]:
    @cache
    def rest(left: frozenset[int]) -> tuple[int, tuple[int, ...]]:
        """How many wishes the best order of what is left breaks, and that order; ValueError if there is none."""
        if not left:
            return 0, ()
        found = []
        for op in sorted(left):
            others = left - {op}
            if not any((other, op) in needed for other in others):
                broken, order = rest(others)
                found.append((broken + sum((other, op) in wished for other in others), (op, *order)))
        return min(found)

    return list(rest(ops)[1])


def main() -> None:
    found = {experiment.name: verdict(experiment) for experiment in experiments()}
    VERDICTS.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


if __name__ == "__main__":
    main()
