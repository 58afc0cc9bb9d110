"""What waits and bytes cost on CPUs, as fitted to the committed runs (tests/test_cost.py)."""

from dataclasses import replace

from collbench.platforms.cost import Hardware, Wait

FITTED = Hardware(
    launch=0.0,  # part of the waits: operations follow each other inside one call into C
    waits={Wait.HOST: 3.70e-6, Wait.FLAG: 76.8e-9, Wait.PACKET: 77.1e-9, Wait.BARRIER: 57.7e-9},
    memory=36.6e9,
    packets=1.737e9,
)
"""Least squares of the relative errors over all hand-written rows of results/cpu-2-ranks-epyc (tests/test_cost.py): two
cores of an AMD EPYC that share a cache.  On another machine times are others, but `auto` only compares them: by these
constants it also chooses well on two cores that share none (results/cpu-2-ranks)."""

_TURN = 21.2
"""How much longer a wait takes where ranks share cores, and the awaited one must first get its turn: a hop of
`ring-flags` in results/cpu-4-ranks-yield against the one above."""


def cpus(crowded: bool) -> Hardware:
    """Return the hardware of ranks that have a core each, or share cores."""
    factor = _TURN if crowded else 1.0
    return replace(FITTED, waits={wait: seconds * factor for wait, seconds in FITTED.waits.items()})
