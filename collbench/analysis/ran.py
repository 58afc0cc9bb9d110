"""What libraries ran, by their own logs: how it changed between two runs, and where NCCL left its own table."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from collbench.analysis.pairs import Pair
from collbench.results import Observed, Prediction, by_key
from collbench.units import format_size

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


def libraries_called(pairs: Sequence[Pair]) -> list[str]:
    """Return a sentence on each implementation that calls one library in one run and another in the other."""
    remarks = []
    for pair in pairs:
        name, base, new = pair.base.implementation, pair.base.library, pair.new.library
        silent = "NEW" if base else "BASE"
        if base and new and base != new:
            remarks.append(f"{name} calls {base} in BASE and {new} in NEW: two libraries are compared")
        elif base != new:
            old = "the run is old, and called it from Python, as mpi-python does now"
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
