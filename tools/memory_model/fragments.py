"""The protocols of the hand-written kernels, cut down to a few threads, and each with the steps that it cannot spare.

A rank is a GPU, a block a CTA.  Where a block has two threads, the first handles the flags, as thread 0 does in
kernels/flags.cuh, and the second the data, as all threads do; in "a thread for each peer" both do both.
docs/kernels.md is the table of both lists.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Fragment:
    """Threads of a protocol, and the outcome that would be a bug."""

    name: str
    wrong: str
    outcome: str
    threads: tuple[str, ...]
    initially: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Weakening:
    """A change of a fragment's text, with which the bug happens."""

    name: str
    fragment: str
    changes: tuple[tuple[str, str], ...]

    def of(self, fragment: Fragment) -> Fragment:
        """The fragment changed; each change must meet some text."""
        text = "\n".join(fragment.threads)
        for old, new in self.changes:
            if old not in text:
                raise ValueError(f"{self.name}: {fragment.name} has no {old!r}")
            text = text.replace(old, new)
        return replace(fragment, name=self.name, threads=tuple(text.splitlines()))


FRAGMENTS: list[Fragment] = [
    Fragment(
        "publish and await",
        "a piece is read before it has arrived",
        "a != 7",
        (
            "0.0: bar.sync 0; st.release.sys [arrived], 1",
            "0.0: st [slot], 7; bar.sync 0",
            "1.0: ld.acquire.sys [arrived] >= 1; bar.sync 0",
            "1.0: bar.sync 0; ld a, [slot]",
        ),
    ),
    Fragment(
        "credit",
        "a slot is overwritten before it has been read",
        "a != 7",
        (
            "1.0: bar.sync 0; st.release.sys [room], 1",
            "1.0: ld a, [slot]; bar.sync 0",
            "0.0: ld.acquire.sys [room] >= 1; bar.sync 0",
            "0.0: bar.sync 0; st [slot], 8",
        ),
        {"slot": 7},
    ),
    Fragment(
        "slot used twice",
        "a piece is not the one that was sent",
        "a != 7 or b != 8",
        (
            "0.0: bar.sync 0; st.release.sys [arrived], 1; ld.acquire.sys [room] >= 1; bar.sync 0;"
            " bar.sync 0; st.release.sys [arrived], 2",
            "0.0: st [slot], 7; bar.sync 0; bar.sync 0; st [slot], 8; bar.sync 0",
            "1.0: ld.acquire.sys [arrived] >= 1; bar.sync 0; bar.sync 0; st.release.sys [room], 1;"
            " ld.acquire.sys [arrived] >= 2; bar.sync 0",
            "1.0: bar.sync 0; ld a, [slot]; bar.sync 0; bar.sync 0; ld b, [slot]",
        ),
    ),
    Fragment(
        "relay",
        "the third rank, told by the second, misses what the first did",
        "a != 7",
        (
            "0.0: st [data], 7; st.release.sys [first], 1",
            "1.0: ld.acquire.sys [first] >= 1; st.release.sys [second], 1",
            "2.0: ld.acquire.sys [second] >= 1; ld a, [data]",
        ),
    ),
    Fragment(
        "relay of a piece",
        "a piece passed on by a block in the middle is wrong at its end",
        "b != 7",
        (
            "0.0: st [slot], 7; st.release.sys [arrived], 1",
            "1.0: ld.acquire.sys [arrived] >= 1; bar.sync 0; bar.sync 0; st.release.sys [onward], 1",
            "1.0: bar.sync 0; ld a, [slot]; st [next], a; bar.sync 0",
            "2.0: ld.acquire.sys [onward] >= 1; ld b, [next]",
        ),
    ),
    Fragment(
        "sum handed into the place of its input",
        "an input is overwritten before its owner has read it, or the owner misses the sum",
        "a != 7 or c != 9",
        (  # two ranks and one chunk in place: rank 0 sends its part, rank 1 completes the sum and hands it over
            "0.0: bar.sync 0; st.release.sys [arrived], 1; ld.acquire.sys [handed] >= 1; bar.sync 0",
            "0.0: ld a, [input]; st [slot], 8; bar.sync 0; bar.sync 0; ld c, [input]",
            "1.0: ld.acquire.sys [arrived] >= 1; bar.sync 0; bar.sync 0; fence.acq_rel.sys; st.relaxed.sys [handed], 1;"
            " st.relaxed.sys [room], 1",
            "1.0: bar.sync 0; ld b, [slot]; st [input], 9; bar.sync 0",
        ),
        {"input": 7},
    ),
    Fragment(
        "one publication for data and credit",
        "a piece is read early, or a slot overwritten early",
        "a != 7 or b != 8",
        (
            "0.0: ld.acquire.sys [room] >= 1; bar.sync 0",
            "0.0: bar.sync 0; st [slot], 9",
            "1.0: bar.sync 0; fence.acq_rel.sys; st.relaxed.sys [arrived], 1; st.relaxed.sys [room], 1",
            "1.0: ld a, [slot]; st [next], 8; bar.sync 0",
            "2.0: ld.acquire.sys [arrived] >= 1; bar.sync 0",
            "2.0: bar.sync 0; ld b, [next]",
        ),
        {"slot": 7},
    ),
    Fragment(
        "fences on both sides",
        "a piece is read before it has arrived",
        "a != 7",
        (
            "0.0: st [slot], 7; fence.acq_rel.sys; st.relaxed.sys [arrived], 1",
            "1.0: ld.relaxed.sys [arrived] >= 1; fence.acq_rel.sys; ld a, [slot]",
        ),
    ),
    Fragment(
        "entry of a pull",
        "a peer's input is read before it is there",
        "a != 8 or b != 7",
        (
            "0.0: bar.sync 0; st.release.sys [entered0], 1; ld.acquire.sys [entered1] >= 1; bar.sync 0",
            "0.0: st [input0], 7; bar.sync 0; bar.sync 0; ld a, [input1]",
            "1.0: bar.sync 0; st.release.sys [entered1], 1; ld.acquire.sys [entered0] >= 1; bar.sync 0",
            "1.0: st [input1], 8; bar.sync 0; bar.sync 0; ld b, [input0]",
        ),
    ),
    Fragment(
        "a thread for each peer",
        "a thread reads the input of a peer that another thread waited for, before it is there",
        "a != 8 or b != 7",
        (
            "0.0: bar.sync 0; st.release.sys [from0], 1",
            "0.0: st [input0], 7; bar.sync 0",
            "1.0: bar.sync 0; st.release.sys [from1], 1",
            "1.0: st [input1], 8; bar.sync 0",
            "2.0: ld.acquire.sys [from0] >= 1; bar.sync 0; ld a, [input1]",
            "2.0: ld.acquire.sys [from1] >= 1; bar.sync 0; ld b, [input0]",
        ),
    ),
    Fragment(
        "exit of a pull",
        "an input is overwritten while a peer reads it",
        "a != 8 or b != 7",
        (
            "0.0: bar.sync 0; st.release.sys [left0], 1; ld.acquire.sys [left1] >= 1; bar.sync 0",
            "0.0: ld a, [input1]; bar.sync 0; bar.sync 0; st [input0], 9",
            "1.0: bar.sync 0; st.release.sys [left1], 1; ld.acquire.sys [left0] >= 1; bar.sync 0",
            "1.0: ld b, [input0]; bar.sync 0; bar.sync 0; st [input1], 9",
        ),
        {"input0": 7, "input1": 8},
    ),
    Fragment(
        "end of a call",
        "a block that starts late takes the number of the next call",
        "last == 1 and number == 1",
        (
            "0.0: ld number, [calls]; atom.acq_rel.gpu.add first, [left], 1",
            "0.1: atom.acq_rel.gpu.add last, [left], 1; st [calls], 1",
        ),
    ),
    Fragment(
        "packet",
        "data is read that did not come with its epoch",
        "e == 1 and f == 1 and (a != 7 or b != 8)",
        ("0.0: st.relaxed.sys.v2.b64 [packet], {7, 1, 8, 1}", "1.0: ld.relaxed.sys.v2.b64 {a, e, b, f}, [packet]"),
    ),
    Fragment(
        "packet of one word",
        "data is read that did not come with its epoch",
        "a != 7",
        ("0.0: st.relaxed.sys.b64 [packet], {7, 1}", "1.0: ld.relaxed.sys.b64 {a, e}, [packet] == 1"),
    ),
    Fragment(
        "two packets",
        "data is read that did not come with its epoch",
        "a != 7 or b != 8",
        (  # as the two halves of a vector, which come in no order
            "0.0: st.relaxed.sys.b64 [first], {7, 1}; st.relaxed.sys.b64 [second], {8, 1}",
            "1.0: ld.relaxed.sys.b64 {a, e}, [first] == 1; ld.relaxed.sys.b64 {b, f}, [second] == 1",
        ),
    ),
    Fragment(
        "packets, three calls",
        "a call reads the packet of another",
        "a != 5 or b != 6 or c != 7 or d != 8",
        (
            "0.0: st.relaxed.sys.b64 [odd1], {7, 1}; ld.relaxed.sys.b64 {a, e}, [odd0] == 1;"
            " st.relaxed.sys.b64 [even1], {8, 2}; ld.relaxed.sys.b64 {b, f}, [even0] == 2;"
            " st.relaxed.sys.b64 [odd1], {9, 3}",
            "1.0: st.relaxed.sys.b64 [odd0], {5, 1}; ld.relaxed.sys.b64 {c, g}, [odd1] == 1;"
            " st.relaxed.sys.b64 [even0], {6, 2}; ld.relaxed.sys.b64 {d, h}, [even1] == 2;"
            " st.relaxed.sys.b64 [odd0], {4, 3}",
        ),
    ),
    Fragment(
        "packets, a slow receiver",
        "a packet is overwritten before it has been read, and waited for in vain",
        "e == 2",
        (  # rank 1 still waits for its first packet; rank 0 has done all it can before rank 1 sends its second
            "0.0: st.relaxed.sys.b64 [odd1], {7, 1}; ld.relaxed.sys.b64 {a, d}, [odd0] == 1;"
            " st.relaxed.sys.b64 [even1], {8, 2}",
            "1.0: st.relaxed.sys.b64 [odd0], {5, 1}; ld.relaxed.sys.b64 {b, e}, [odd1]",
        ),
    ),
    Fragment(
        "two threads wait for two flags",
        "a piece is read before it has arrived, or a slot overwritten before it has been read",
        "a != 7 or b != 8",
        (
            "0.0: st [piece], 7; st.release.sys [arrived], 1",
            "1.0: ld b, [slot]; st.release.sys [room], 1",
            "2.0: ld.acquire.sys [arrived] >= 1; bar.sync 0",
            "2.0: ld.acquire.sys [room] >= 1; bar.sync 0",
            "2.0: bar.sync 0; ld a, [piece]; st [slot], 9",
        ),
        {"slot": 8},
    ),
    Fragment(
        "multicast load",
        "the switch adds an input before it is there",
        "a != 7 or b != 8",
        (  # the first barrier stands for the start of the kernel: inputs are older
            "0.0: bar.sync 0; fence.proxy.alias; bar.sync 0; st.release.sys [entered0], 1",
            "0.0: st [input0], 7; bar.sync 0; bar.sync 0",
            "1.0: bar.sync 0; fence.proxy.alias; bar.sync 0; ld.acquire.sys [entered0] >= 1; bar.sync 0",
            "1.0: st [input1], 8; bar.sync 0; bar.sync 0; bar.sync 0;"
            " multimem.ld_reduce.relaxed.sys {a, b}, [input0|input1]",
        ),
    ),
    Fragment(
        "multicast load, then the next input",
        "the switch adds an input of the next call",
        "a != 7 or b != 8",
        (
            "0.0: bar.sync 0; fence.proxy.alias; bar.sync 0; st.release.sys [left0], 1; bar.sync 0",
            "0.0: multimem.ld_reduce.relaxed.sys {a, b}, [input0|input1]; bar.sync 0; bar.sync 0; bar.sync 0;"
            " st [input0], 9",
            "1.0: ld.acquire.sys [left0] >= 1; bar.sync 0",
            "1.0: bar.sync 0; st [input1], 9",
        ),
        {"input0": 7, "input1": 8},
    ),
    Fragment(
        "multicast store",
        "a result is read before the switch has handed it round",
        "a != 7 or b != 7",
        (
            "0.0: bar.sync 0; fence.proxy.alias; bar.sync 0; st.release.sys [left0], 1; bar.sync 0",
            "0.0: multimem.st.relaxed.sys [result0|result1], 7; bar.sync 0; bar.sync 0; bar.sync 0; ld a, [result0]",
            "1.0: ld.acquire.sys [left0] >= 1; bar.sync 0",
            "1.0: bar.sync 0; ld b, [result1]",
        ),
    ),
    Fragment(
        "multicast store over an old result",
        "a result of the last call is overwritten before its owner has read it",
        "a != 5 or b != 6",
        (
            "1.0: bar.sync 0; fence.proxy.alias; bar.sync 0; st.release.sys [entered1], 1",
            "1.0: ld b, [result1]; bar.sync 0; bar.sync 0",
            "0.0: bar.sync 0; fence.proxy.alias; bar.sync 0; ld.acquire.sys [entered1] >= 1; bar.sync 0",
            "0.0: ld a, [result0]; bar.sync 0; bar.sync 0; bar.sync 0; multimem.st.relaxed.sys [result0|result1], 7",
        ),
        {"result0": 5, "result1": 6},
    ),
    Fragment(
        "multicast in place",
        "the switch adds its own result, or the result is read before it is there",
        "a != 7 or b != 8 or c != 9",
        (
            "0.0: bar.sync 0; fence.proxy.alias; bar.sync 0; st.release.sys [left0], 1",
            "0.0: multimem.ld_reduce.relaxed.sys {a, b}, [data0|data1]; multimem.st.relaxed.sys [data0|data1], 9;"
            " bar.sync 0; bar.sync 0",
            "1.0: ld.acquire.sys [left0] >= 1; bar.sync 0",
            "1.0: bar.sync 0; ld c, [data1]",
        ),
        {"data0": 7, "data1": 8},
    ),
]


ON_ONE_DEVICE = "on one device: "


def on_one_device(fragment: Fragment) -> Fragment:
    """The same with all ranks on one GPU, CTA c of rank r being its CTA 2 r + c, and all at that GPU's scope."""
    threads = tuple(
        re.sub(r"^(\d)\.(\d):", lambda at: f"0.{2 * int(at[1]) + int(at[2])}:", thread).replace(".sys", ".gpu")
        for thread in fragment.threads
    )
    return replace(fragment, name=ON_ONE_DEVICE + fragment.name, threads=threads)


def in_one_thread(fragment: Fragment) -> Fragment:
    """The same with one thread a block, which does between two barriers what the block's threads did; for pictures."""
    places = dict.fromkeys(thread.partition(":")[0] for thread in fragment.threads)
    threads = []
    for place in places:
        codes = [thread.partition(":")[2] for thread in fragment.threads if thread.startswith(f"{place}:")]
        rounds = zip(*(code.split("bar.sync 0") for code in codes), strict=True)
        steps = [step.strip("; ") for parts in rounds for step in parts]
        threads.append(f"{place}: {'; '.join(filter(None, steps))}")
    return replace(fragment, threads=tuple(threads))


BETWEEN_DEVICES = tuple(FRAGMENTS)
FRAGMENTS += [
    on_one_device(fragment)
    for fragment in BETWEEN_DEVICES
    if not any("multimem" in thread for thread in fragment.threads)
]


def without_meeting(flag: str) -> tuple[tuple[str, str], ...]:
    """Neither of two ranks says that it is there, or waits."""
    meetings = (f"st.release.sys [{flag}{i}], 1; ld.acquire.sys [{flag}{1 - i}] >= 1; " for i in (0, 1))
    return tuple((meeting, "") for meeting in meetings)


RELAXED_STORE, RELAXED_LOAD = ("st.release.sys", "st.relaxed.sys"), ("ld.acquire.sys", "ld.relaxed.sys")
VOLATILE = (("st.release.sys", "st.volatile"), ("ld.acquire.sys", "ld.volatile"))

WEAKENINGS = [
    Weakening("relaxed publish", "publish and await", (RELAXED_STORE,)),
    Weakening("relaxed poll", "publish and await", (RELAXED_LOAD,)),
    Weakening("volatile on both sides", "publish and await", VOLATILE),
    Weakening("publish at gpu scope", "publish and await", (("release.sys", "release.gpu"),)),
    Weakening("await at gpu scope", "publish and await", (("acquire.sys", "acquire.gpu"),)),
    Weakening("no barrier before publish", "publish and await", (("bar.sync 0; st", "st"), ("7; bar.sync 0", "7"))),
    Weakening("no barrier after await", "publish and await", (("bar.sync 0; ld", "ld"), ("1; bar.sync 0", "1"))),
    Weakening("no wait", "publish and await", (("ld.acquire.sys [arrived] >= 1; ", ""),)),
    Weakening("relaxed credit", "credit", (RELAXED_STORE,)),
    Weakening("relaxed wait for credit", "credit", (RELAXED_LOAD,)),
    Weakening(
        "no barrier before credit", "credit", (("bar.sync 0; st.rel", "st.rel"), ("[slot]; bar.sync 0", "[slot]"))
    ),
    Weakening("no barrier after credit", "credit", (("bar.sync 0; st [", "st ["), ("1; bar.sync 0", "1"))),
    Weakening("no wait for credit", "slot used twice", (("ld.acquire.sys [room] >= 1; ", ""),)),
    Weakening("credit at gpu scope", "slot used twice", (("st.release.sys [room]", "st.release.gpu [room]"),)),
    Weakening("relay relaxed in the middle", "relay", (("st.release.sys [second]", "st.relaxed.sys [second]"),)),
    Weakening("relay that takes relaxed", "relay", (("ld.acquire.sys [first]", "ld.relaxed.sys [first]"),)),
    Weakening("block passes on relaxed", "relay of a piece", (("st.release.sys [onward]", "st.relaxed.sys [onward]"),)),
    Weakening("sum handed over, no fence", "sum handed into the place of its input", (("fence.acq_rel.sys; ", ""),)),
    Weakening(
        "sum handed over unasked", "sum handed into the place of its input", (("ld.acquire.sys [arrived] >= 1; ", ""),)
    ),
    Weakening("one publication, no fence", "one publication for data and credit", (("fence.acq_rel.sys; ", ""),)),
    Weakening("one publication, gpu fence", "one publication for data and credit", (("acq_rel.sys", "acq_rel.gpu"),)),
    Weakening(
        "one publication, fence late",
        "one publication for data and credit",
        (("fence.acq_rel.sys; st.relaxed.sys [arrived], 1", "st.relaxed.sys [arrived], 1; fence.acq_rel.sys"),),
    ),
    Weakening("fence at the writer only", "fences on both sides", (("fence.acq_rel.sys; ld", "ld"),)),
    Weakening("fence at the reader only", "fences on both sides", (("fence.acq_rel.sys; st", "st"),)),
    Weakening("no entry", "entry of a pull", without_meeting("entered")),
    Weakening("relaxed entry", "entry of a pull", (RELAXED_STORE,)),
    Weakening("no barrier after meeting", "a thread for each peer", (("1; bar.sync 0", "1"),)),
    Weakening("no exit", "exit of a pull", without_meeting("left")),
    Weakening("relaxed exit", "exit of a pull", (RELAXED_STORE,)),
    Weakening("end of a call, counted relaxed", "end of a call", (("atom.acq_rel", "atom.relaxed"),)),
    Weakening("packet as v4.u32", "packet", (("v2.b64", "v4.u32"),)),
    Weakening("packet read weakly", "packet", (("ld.relaxed.sys", "ld"),)),
    Weakening("packet at gpu scope", "packet of one word", (("st.relaxed.sys", "st.relaxed.gpu"),)),
    Weakening("second packet not looked at", "two packets", (("[second] == 1", "[second]"),)),
    Weakening("epoch not looked at", "packets, three calls", ((" == 1", ""),)),
    Weakening("one buffer for all packets", "packets, a slow receiver", (("[even1]", "[odd1]"),)),
    *(
        Weakening(f"{name}, no proxy fence", name, (("fence.proxy.alias; ", ""),))
        for name in (
            "multicast load",
            "multicast load, then the next input",
            "multicast store",
            "multicast store over an old result",
            "multicast in place",
        )
    ),
    *(
        Weakening(
            f"{name}, fence before the barrier",
            name,
            (("0.0: bar.sync 0; fence.proxy.alias; bar.sync 0", "0.0: fence.proxy.alias; bar.sync 0; bar.sync 0"),),
        )
        for name in ("multicast load", "multicast load, then the next input", "multicast store", "multicast in place")
    ),
    Weakening(
        "multicast load, fence of the reader only",
        "multicast load",
        (("0.0: bar.sync 0; fence.proxy.alias; bar.sync 0", "0.0: bar.sync 0; bar.sync 0"),),
    ),
    Weakening(
        "two threads wait, no barrier",
        "two threads wait for two flags",
        (("1; bar.sync 0", "1"), ("bar.sync 0; ld a", "ld a")),
    ),
    Weakening("multicast load, relaxed entry", "multicast load", (RELAXED_STORE,)),
    Weakening("multicast store, relaxed exit", "multicast store", (RELAXED_STORE,)),
]
WEAKENINGS += [
    Weakening(f"{fragment.name}, cta scope", fragment.name, ((".gpu", ".cta"),))
    for fragment in FRAGMENTS
    if fragment.name.startswith(ON_ONE_DEVICE) and not fragment.name.endswith("a slow receiver")  # goes by turns alone
] + [Weakening("on one device: one buffer", "on one device: packets, a slow receiver", (("[even1]", "[odd1]"),))]
