"""Every trial, by the modules that define them."""

from itertools import chain

from tools.faults import compilers, kills, launched, signals, storage, streams, surroundings
from tools.faults.trial import Trial

SOURCES = (compilers, launched, signals, kills, storage, streams, surroundings)  # those that wait come first


def every() -> list[Trial]:
    """In the order of the sources."""
    return list(chain.from_iterable(source.trials() for source in SOURCES))
