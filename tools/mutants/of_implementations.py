"""Faults of the Python that carries cases out, seen on CPUs."""

from tools.mutants.trial import Mutant, Trial

_AT = "collbench/algorithms/"
_PASSED = "source, count = self.chunk((rank - 1) % self.case.ranks, rank - step)\n"

MUTANTS = (
    Mutant(
        "a ring of the host without its waits",
        f"{_AT}ring_host.py",
        (("            platform.launcher.synchronize()\n", ""),),
        Trial("ring-host"),
    ),
    Mutant(
        "a ring of the host with one step too few",
        f"{_AT}ring_host.py",
        (("for step in range(self.case.ranks - 1))]", "for step in range(self.case.ranks - 2))]"),),
        Trial("ring-host"),
    ),
    Mutant(
        "a ring of the host that does not divide",
        f"{_AT}ring_host.py",
        (('if self.case.redop.name != "avg":', "if True:"),),
        Trial("ring-host", redop="avg"),
    ),
    Mutant(
        "a ring of the host that starts from nothing",
        f"{_AT}ring_host.py",
        (("if send != receive else []", "if send == receive else []"),),
        Trial("ring-host"),
    ),
    Mutant(
        "a ring of the host with the wrong neighbour's chunk",
        f"{_AT}ring_host.py",
        ((_PASSED, _PASSED.replace("step)", "step - 1)")),),
        Trial("ring-host", ranks=3),
    ),
    Mutant(
        "a FIFO shared with another",
        "collbench/platforms/layout.py",
        (("(nbytes + GUARD for nbytes in fifos.values())", "(0 for nbytes in fifos.values())"),),
        Trial("ring-flags,ring-ll"),
        unseen="every call writes a slot before it is read, and other data have the flag of a packet once in 2^32",
    ),
    Mutant(
        "shards of an element less",
        f"{_AT}direct.py",
        (("np.uint64(case.block), np.uint64(shard)", "np.uint64(case.block), np.uint64(shard - 1)"),),
        Trial("two-shot", size="4096"),  # shards are whole packs: only where they fill the array is one missed
    ),
    Mutant(
        "an element too few",
        f"{_AT}direct.py",
        (("np.uint64(case.block)))", "np.uint64(case.block - 1)))"),),
        Trial("one-shot"),
    ),
    Mutant(
        "an element too many",
        f"{_AT}direct.py",
        (("np.uint64(case.block)))", "np.uint64(case.block + 1)))"),),
        Trial("one-shot", size="4004"),
    ),
    Mutant(
        "packets for eight bytes too few",
        f"{_AT}one_shot_ll.py",
        (("room, np.uint64(case.nbytes)", "room, np.uint64(case.nbytes - 8)"),),
        Trial("one-shot-ll"),
    ),
    Mutant(
        "an inbox with no room",
        f"{_AT}one_shot_ll.py",
        (("np.uint64(longest(case.ranks) // PAYLOAD)", "np.uint64(0)"),),
        Trial("one-shot-ll"),
    ),
    Mutant(
        "pieces longer than their slots",
        f"{_AT}ring.py",
        (("start, slot, piece, *lengths(case)", "start, slot, 4 * piece, *lengths(case)"),),
        Trial("ring-flags", size="16M"),
    ),
    Mutant(
        "the rank beside",
        "collbench/platforms/cpu/platform.py",
        (
            (
                'world["streamed"], world["trace"]',
                'world["send"][:2] = world["send"][1::-1]\n        world["streamed"], world["trace"]',
            ),
        ),
        Trial("parameter-server", op="allreduce", redop="sum"),
        unseen="whose input is whose does not matter to a sum in which all are added",
    ),
)
