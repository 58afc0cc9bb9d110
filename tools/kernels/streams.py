"""The bugs that the harness of kernels/host/streams.cpp must catch; docs/kernels.md has the table.

A bug is a change of the kernels' text, made in a copy; `collbench.commands.exercise.races` builds and runs them.
"""

import re
from dataclasses import dataclass, replace
from functools import cache

from collbench.commands.exercise.races import (
    GAVE_UP,
    NARROW,
    PACKETS,
    RACE,
    RECEIVE,
    START,
    WRONG,
    Change,
    Outcome,
    Run,
    build,
    outcome,
)
from collbench.platforms import compiler

ALLREDUCES = (
    "ring-flags",
    "ring-pipelined",
    "ring-ll",
    "one-shot",
    "two-shot",
    "parameter-server",
    "one-shot-ll",
    "nvls",
)
OTHERS = tuple(
    f"{ring}-{collective}"
    for ring in ("ring-flags", "ring-pipelined")
    for collective in ("broadcast", "allgather", "reducescatter")
)
"""What rings do besides the all-reduce."""


@dataclass(frozen=True)
class Bug:
    """A change of the kernels with which a run must go wrong, in at least this way."""

    name: str
    run: Run
    catcher: str
    changes: tuple[Change, ...] = ()
    options: tuple[str, ...] = ()

    def caught(self, tries: int = 4) -> set[str]:
        """Who noticed; with other stalls, if the first do not show what must be shown."""
        binary = build(self.run.parts(), self.changes, self.options)
        noticed: set[str] = set()
        for seed in range(1, tries + 1):
            noticed |= outcome(binary, replace(self.run, seed=seed, timeout=1000)).catchers
            if self.catcher in noticed:
                break
        return noticed


@cache
def clean(run: Run) -> Outcome:
    """That run of the kernels as they are."""
    every = Run((*ALLREDUCES, *OTHERS), 2) if NARROW not in run.kernels else run
    return outcome(build(every.parts()), run)


_SEND = "    if (VERBS & SEND) publish(arrived, ++sent);\n"
_TAKE = "    if (VERBS & TAKE) publish(room, ++taken);\n"
_TOLD = "    told<VERBS>(&next->channel[block].arrived.word[0], &previous->channel[block].room.word[0]);\n"
_MOVE = "    const bool far = STREAMS && (VERBS & (SEND | HAND)) && packs >= world.streamed;\n"
_TAIL = "    move<VERBS, 1>(in + tail, source + tail, target + tail, out + tail, count - tail, world.ranks);\n"
_PUBLISH = "unsigned number) {\n  drain();\n  __syncthreads();\n"
_PUBLISH_BOTH = "unsigned other_number) {\n  drain();\n  __syncthreads();\n"
_MEET = "    const unsigned value = 4 * number + place;\n    drain();\n    __syncthreads();\n"
_MET = "value, world, &mine->error.word[0]);\n    __syncthreads();\n"
_LOOKED = (
    "if (threadIdx.x == 0) look_until({}, number, world, error);\n  stamp(world, Phase::WAITED);\n  __syncthreads();\n"
)
_AWAIT, _AWAIT_BOTH = _LOOKED.format("flag"), _LOOKED.format("one")
_BROADCAST = (
    "  Ring ring(world, rank, fifo, {});\n"
    "  for (u64 lap = world.block() * piece; lap < count; lap += world.blocks * piece) {{\n"
)
_EPOCH = "mine->channel[block].own.word[5]"

_RELAXED_STORE = ("-DPUBLISH_ORDER=__ATOMIC_RELAXED",)
_RELAXED_LOAD = ("-DAWAIT_ORDER=__ATOMIC_RELAXED",)


def _without(file: str, text: str, part: str) -> Change:
    """The text without one part of it."""
    return file, text, text.replace(part, "")


_BARRIER = "__syncthreads();\n"
_RING, _PIPELINED, _DIRECT = Run(("ring-flags",), 3), Run(("ring-pipelined",), 3), Run(("one-shot", "two-shot"), 3)
_ONE_SHOT, _TWO_SHOT, _LL = Run(("one-shot",), 3), Run(("two-shot",), 3), Run(("one-shot-ll",), 3)
_RING_LL, _NVLS = Run(("ring-ll",), 4), Run(("nvls",), 3)
WARPS = (33, 40)  # threads of more warps than one
_LARGE = Run((NARROW,), 2, calls=6, counts=(1003, 37, 1700), threads=(32, *WARPS))
_WIDE = Run(("ring-flags",), 2, calls=6, threads=WARPS)


def _body(kernel: str, part: str, file: str = "direct.cu") -> tuple[Change, ...]:
    """Take a line out of one kernel of a file."""
    text = (compiler.folder() / file).read_text()
    found = re.search(
        rf"^(?:extern .*)?\s+{kernel}\(PARAMETER.*?^}}\n|^extern .* {kernel}\(.*?^}}\n", text, re.M | re.S
    )
    assert found, kernel
    return (_without(file, found[0], part),)


BUGS = [
    Bug("relaxed publish", _RING, RACE, options=_RELAXED_STORE),
    Bug("relaxed poll", _RING, RACE, options=_RELAXED_LOAD),
    Bug("no barrier before publish", _RING, RACE, (_without("flags.cuh", _PUBLISH, f"  {_BARRIER}"),)),
    Bug(
        "no barrier before the publication of two",
        _PIPELINED,
        RACE,
        (_without("flags.cuh", _PUBLISH_BOTH, f"  {_BARRIER}"),),
    ),
    Bug("no barrier after await", _RING, RACE, (_without("flags.cuh", _AWAIT, f"  {_BARRIER}"),)),
    Bug("no wait for arrival", _RING, RACE, (("ring.cu", "if (VERBS & TAKE) await", "if (false) await"),)),
    Bug("no wait for room", _RING, RACE, (("ring.cu", "if (VERBS & SEND) await", "if (false) await"),)),
    Bug("room for one piece too many", _RING, RACE, (("ring.cu", "free = sent + 1 - SLOTS", "free = sent - SLOTS"),)),
    Bug("no barrier after a wait for both", _PIPELINED, RACE, (_without("flags.cuh", _AWAIT_BOTH, f"  {_BARRIER}"),)),
    Bug(
        "no wait for arrival where both are waited for",
        _PIPELINED,
        RACE,
        (("flags.cuh", "look_until(one, number, world, error)", "look_until(one, number - 1, world, error)"),),
    ),
    Bug(
        "no wait for room where both are waited for",
        replace(_PIPELINED, ranks=4, stall=START),  # of three, who ends a lap knows that both slots are free
        RACE,
        (("ring.cu", "taken + 1, room, free, world", "taken + 1, room, free - SLOTS, world"),),
    ),
    Bug(
        "no wait for what is handed over",
        _PIPELINED,
        RACE,
        (("ring.cu", "await(arrived + 1, handed, world, error)", "await(arrived + 1, handed - 1, world, error)"),),
    ),
    Bug(
        "handed over before it is there",
        _PIPELINED,
        RACE,
        (
            (
                "ring.cu",
                "    if (VERBS & HAND) return publish(arrived + 1, ++handed);\n",
                "    if (VERBS & HAND) return;\n",
            ),
            (
                "ring.cu",
                _MOVE,
                f"    if (VERBS == PASS) publish(&next->channel[block].arrived.word[1], ++handed);\n{_MOVE}",
            ),
        ),
    ),
    Bug(
        "handed over to the next rank but one before it has added",
        replace(_PIPELINED, ranks=4),
        RACE,
        (("ring.cu", "receive[(rank + 1) % ranks]", "receive[(rank + 2) % ranks]"),),
    ),
    Bug(
        "slots as far apart as a call's pieces are long",
        Run(("ring-pipelined-broadcast",), 3),  # an all-reduce ends with empty slots
        RACE,
        (("ring.cu", _BROADCAST.format("slot"), _BROADCAST.format("piece")),),
    ),
    Bug("fewer slots than are counted on", _RING, RACE, (("ring.cu", "sent % SLOTS * slot", "sent % 1 * slot"),)),
    Bug(
        "credit before the slot is read",
        _RING,
        RACE,
        (
            ("ring.cu", _TAKE, "    if (VERBS & TAKE) ++taken;\n"),
            (
                "ring.cu",
                _MOVE,
                f"    if (VERBS & TAKE) publish(&previous->channel[block].room.word[0], taken + 1);\n{_MOVE}",
            ),
        ),
    ),
    Bug(
        "arrival and room published before the data",
        _PIPELINED,
        RACE,
        (("ring.cu", _TOLD, ""), ("ring.cu", _MOVE, f"{_TOLD}{_MOVE}")),
    ),
    Bug(
        "flags used again from call to call",
        _RING,
        RACE,
        (
            ("ring.cu", "own.word[0] = sent;", "own.word[0] = 0;"),
            ("ring.cu", "own.word[1] = taken;", "own.word[1] = 0;"),
        ),
    ),
    Bug(
        "numbers remembered before all threads have read them",
        _RING,
        RACE,
        (("ring.cu", "end_trace(world);\n    __syncthreads();\n", "end_trace(world);\n"),),
    ),
    Bug(
        "chunks in a wrong order",
        _RING,
        WRONG,
        (
            (
                "ring.cu",
                "ring.hop<COMPLETE>(from(rank), to(rank)",
                "ring.hop<COMPLETE>(from(rank + 1), to(rank)",
            ),
        ),
    ),
    Bug(
        "tail dropped",
        _RING,
        WRONG,
        (
            (
                "ring.cu",
                _TAIL,
                "",
            ),
        ),
    ),
    Bug("relaxed publish in a meeting", _DIRECT, RACE, options=_RELAXED_STORE),
    Bug("relaxed poll in a meeting", _DIRECT, RACE, options=_RELAXED_LOAD),
    Bug("no barrier before a meeting", _DIRECT, RACE, (_without("flags.cuh", _MEET, f"    {_BARRIER}"),)),
    Bug("no barrier after a meeting", _DIRECT, RACE, (_without("flags.cuh", _MET, f"    {_BARRIER}"),)),
    Bug("no meeting at the entry, pull", _ONE_SHOT, RACE, _body("one_shot", "  call.meet(0);\n")),
    Bug("no meeting at the exit, pull", _ONE_SHOT, RACE, _body("one_shot", "  call.meet(1);\n")),
    Bug("no meeting at the entry, push", _TWO_SHOT, RACE, _body("two_shot", "  call.meet(0);\n")),
    Bug("no meeting at the exit, push", _TWO_SHOT, RACE, _body("two_shot", "  call.meet(1);\n")),
    Bug("both meetings with one number", _ONE_SHOT, RACE, (("flags.cuh", "4 * number + place", "4 * number"),)),
    Bug(
        "calls not counted", _ONE_SHOT, RACE, (("flags.cuh", "    mine->calls.word[0] = number + numbers - 1;\n", ""),)
    ),
    Bug(
        "blocks counted relaxed",
        _ONE_SHOT,
        RACE,
        (("flags.cuh", "__ATOMIC_ACQ_REL", "__ATOMIC_RELAXED"),),
    ),
    Bug(
        "a call ended by its first block",
        replace(_ONE_SHOT, blocks=(2,), stall=START),
        GAVE_UP,
        (("flags.cuh", "+ 1 < world.blocks) return;", "+ 1 > 1) return;"),),
    ),
    Bug(
        "a call ended by each of its blocks",
        replace(_ONE_SHOT, blocks=(2,), stall=START),
        GAVE_UP,
        (("flags.cuh", "if (world.blocks > 1) {", "if (world.blocks > 2) {"),),
    ),
    Bug(
        "packets looked at ahead, and believed",
        _LL,
        WRONG,
        (("packets.cuh", "if (first >> 32 != flag || second >> 32 != flag) {", "if (false) {"),),
    ),
    Bug(
        "a number for each block, and a grid that changes",
        replace(_LL, counts=(260,), threads=(1,), stall=START),
        WRONG,
        (
            ("flags.cuh", "number(mine->calls.word[0] + 1)", f"number({_EPOCH} + 1)"),
            (
                "flags.cuh",
                "    if (world.blocks > 1) {",
                f"    {_EPOCH} = number;\n    if (world.blocks > 1) {{",
            ),
        ),
    ),
    Bug(
        "one buffer for all packets",
        replace(_LL, stall=RECEIVE),
        GAVE_UP,
        (("one_shot_ll.cu", "(call.number & 1) * ranks", "0 * ranks"),),
    ),
    Bug("packets of all calls alike", _LL, WRONG, (("one_shot_ll.cu", "flag = 2 * call.number + 1", "flag = 1"),)),
    Bug(
        "second packet not looked at",
        replace(_LL, stall=PACKETS),
        WRONG,
        (
            ("packets.cuh", "if (first >> 32 != flag || second >> 32 != flag)", "if (first >> 32 != flag)"),
            ("packets.cuh", "(first >> 32 != flag || second >> 32 != flag) &&", "first >> 32 != flag &&"),
        ),
    ),
    Bug(
        "packets in fewer slots than ranks",
        replace(_RING_LL, stall=RECEIVE),
        GAVE_UP,
        (("ring_ll.cu", "slots(slots),", "slots(2),"),),
    ),
    Bug(
        "packets of all pieces alike",
        _RING_LL,
        WRONG,
        (("ring_ll.cu", "came = 2 * taken + 1, goes = 2 * sent + 1", "came = 1, goes = 1"),),
    ),
    Bug("no meeting at the entry, switch", _NVLS, RACE, _body("nvls", "  call.meet(0);\n", "multimem.cu")),
    Bug("no meeting at the exit, switch", _NVLS, RACE, _body("nvls", "  call.meet(1);\n", "multimem.cu")),
    Bug(
        "every rank the first shard, switch",
        _NVLS,
        RACE,
        (("multimem.cu", "first = call.rank * chunk", "first = 0 * chunk"),),
    ),
    Bug(
        "tail dropped, switch",
        _NVLS,
        WRONG,
        (("multimem.cu", "    by_hand(first + tail, count - tail);\n", ""),),
    ),
    Bug(
        "a switch that leaves out a lane",
        _NVLS,
        WRONG,
        (("multimem.cu", "i < LANES && !refused(results + at)", "i + 1 < LANES && !refused(results + at)"),),
    ),
    Bug(
        "units from an element on that no switch takes",
        replace(_NVLS, counts=(1003,)),
        WRONG,
        (
            (
                "multimem.cu",
                "by_switch(inputs, results, first + head, units)",
                "by_switch(inputs, results, first + 1, units)",
            ),
        ),
    ),
    Bug(
        "no barrier before publish, two warps",
        _WIDE,
        RACE,
        (_without("flags.cuh", _PUBLISH, f"  {_BARRIER}"),),
    ),
    Bug(
        "no second warp that waits for room",
        replace(_WIDE, kernels=("ring-pipelined",), ranks=4, calls=16, stall=START),
        RACE,
        (("flags.cuh", "blockDim.x > WARP ? WARP : 0", "blockDim.x > WARP ? 2 * WARP : 0"),),
    ),
    Bug(
        "packets of all pieces alike, two warps",
        replace(_WIDE, kernels=("ring-ll",)),
        WRONG,
        (("ring_ll.cu", "came = 2 * taken + 1, goes = 2 * sent + 1", "came = 1, goes = 1"),),
    ),
    Bug(
        "blocks of a warp, whatever their threads",
        replace(_WIDE, kernels=("two-shot",), blocks=(2,)),
        RACE,
        (("direct.cu", "call.block * blockDim.x + threadIdx.x", "call.block * WARP + threadIdx.x"),),
    ),
    Bug("no meeting of a round, narrow", _LARGE, RACE, (("narrow.cu", "    call.meet(round + 1);\n", ""),)),
    Bug(
        "boxes that are not taken in turn, narrow",
        _LARGE,
        RACE,
        (("narrow.cu", "2 * kind + (round & 1)", "2 * kind"),),
    ),
]


def table() -> str:
    """The bugs by the kernels that run them and by what catches them, as docs/kernels.md has them."""
    caught: dict[str, dict[str, list[str]]] = {}
    for bug in BUGS:
        kernels = ", ".join(f"`{kernel}`" for kernel in bug.run.kernels)
        caught.setdefault(kernels, {RACE: [], WRONG: [], GAVE_UP: []})[bug.catcher].append(bug.name)
    lines = ["| run | race | wrong result | stuck |", "|---|---|---|---|"]
    for kernels, names in caught.items():
        lines.append(f"| {kernels} | {' | '.join('; '.join(some) for some in names.values())} |")
    return "\n".join(lines)
