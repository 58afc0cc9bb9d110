"""The same number of ranks on several interconnects, without which a ratio compares two things at once."""

from collections.abc import Iterable, Sequence

from collbench.topology.system import System


def common_ranks(systems: Sequence[System], measured: Iterable[set[int]] = ()) -> int | None:
    """The largest number that one of the systems has by itself and all can have; None if there is none.

    `measured` are the numbers of ranks of runs beside them: then one that all of these have.
    """
    counts = [count for count in measured if count]
    own = set.intersection(*counts) if counts else {system.ranks for system in systems}
    return max((count for count in own if all(can_have(system, count) for system in systems)), default=None)


def can_have(system: System, ranks: int) -> bool:
    """Whether they are some GPUs of one node, or whole nodes of which there are enough or that cards can join."""
    if ranks <= system.gpus:
        return True
    return ranks % system.gpus == 0 and (system.nics is not None or ranks <= system.ranks)
