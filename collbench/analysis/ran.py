"""What ran and what came of it in two runs: libraries by their own logs, where NCCL left its table, bits of sums."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from collbench.analysis.matching import Key
from collbench.analysis.pairs import Pair
from collbench.results import Observed, Prediction, Result, by_key
from collbench.units import counted, format_size

_UNTABLED = ("symm", "ce")  # that NCCL takes by rules of their own


def ran_otherwise(pairs: Sequence[Pair]) -> list[str]:
    """Return a sentence on each change of what a library ran, with the sizes that have it."""
    remarks = []
    for (kind, name), curve in by_key(pairs, lambda pair: pair.curve).items():
        said = []
        for pair in curve:
            base, new = pair.base.method, pair.new.method
            said.append((pair.nbytes, f"{base} in BASE, {new} in NEW" if base and new and base != new else ""))
        remarks += [f"{name} at {where} ({kind.title}): {words}" for words, where in _by_words(said).items()]
    return remarks


def other_bits(base: Mapping[Key, Result], new: Mapping[Key, Result]) -> list[str]:
    """Return a sentence on each implementation whose sums of the same values have other bits, with the sizes."""
    said: dict[str, dict[int, str]] = defaultdict(dict)
    alike = 0
    for (case, name), before in base.items():
        after = new.get((case, name))
        if before.digest and after and after.digest and before.right and after.right:
            same = before.digest == after.digest
            alike += same
            sizes = said[f"{name} ({replace(case.kind, work=None).title})"]  # of all laws of values
            sizes[case.nbytes] = sizes.get(case.nbytes, "") or ("" if same else "other bits in NEW")
    remarks = [f"{who}: {what} at {at}" for who, sizes in said.items() for what, at in _by_words(sizes.items()).items()]
    return remarks + [f"{counted(alike, 'sum')} of random values with the same bits in both"] * bool(said)


def libraries_called(pairs: Sequence[Pair]) -> list[str]:
    """Return a sentence on each implementation that calls one library in one run and another in the other."""
    remarks = []
    for pair in pairs:
        name, base, new = pair.base.implementation, pair.base.library, pair.new.library
        silent = "NEW" if base else "BASE"
        if base and new and base != new:
            remarks.append(f"{name} calls {base} in BASE and {new} in NEW: two libraries are compared")
        elif base != new:
            old = "the run is old, and called it from Python"
            remarks.append(f"{silent} does not say which library {name} calls: {old}")
    return list(dict.fromkeys(remarks))


def unlike_table(measured: Sequence[Observed], expected: Sequence[Prediction]) -> list[str]:
    """Return what NCCL took where its own table, by the model, says something else, with the sizes."""
    said = []
    for row, other in zip(measured, expected, strict=False):
        known = row.method and row.algorithm not in _UNTABLED
        unlike = known and row.method != other.method
        said.append((row.case.nbytes, f"NCCL took {row.method} where its table says {other.method}" if unlike else ""))
    return [f"{words}, at {where}" for words, where in _by_words(said).items()]


def _by_words(said: Iterable[tuple[int, str]]) -> dict[str, str]:
    """Return at which sizes each thing is said, neighbours together: `64 KiB, 1 MiB to 4 MiB`; no words say nothing."""
    places: dict[str, list[str]] = {}
    for words, alike in groupby(sorted(said), key=itemgetter(1)):
        sizes = [format_size(nbytes) for nbytes, _ in alike]
        places.setdefault(words, []).append(sizes[0] if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}")
    return {words: ", ".join(where) for words, where in places.items() if words}
