"""Every trial, by the modules that define them."""

from collections.abc import Iterator

from tools.faults import compilers, hostile, kills, launched, signals, storage, streams, surroundings
from tools.faults.trial import Trial

SOURCES = (compilers, launched, signals, kills, storage, streams, surroundings, hostile)  # those that wait come first


def every() -> list[Trial]:
    """In the order of the sources."""
    return list(_all())


def _all() -> Iterator[Trial]:
    for source in SOURCES:
        yield from source.trials()
