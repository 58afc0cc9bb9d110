"""How many ranks a test had: what it lists, what it was started with, what the user says, and what its rows allow."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collbench.collectives import Collective
from collbench.formats.nccl_tests.evidence import NOTHING, Evidence

Listed = tuple[int, int]  # group and rank


@dataclass(frozen=True)
class RankCount:
    """A number of ranks, or None with the reason; and what the user must know of how it was come by."""

    ranks: int | None
    why: str = ""


def listed_ranks(listed: Sequence[Listed], together: int) -> list[int]:
    """The numbers of ranks that a list allows, the likeliest first; `together` are those of one process.

    Lists are trimmed to their ends or their beginning, so the highest rank counts.  Where the communicator was split,
    ranks are numbered across the groups, and only a whole list tells how many a group has.
    """
    if not listed:
        return []
    groups, numbers = {group for group, _ in listed}, {rank for _, rank in listed}
    of_first = len({rank for group, rank in listed if group == listed[0][0]})
    highest = max(numbers) + 1
    if len(groups) > 1:
        return [of_first] if len(numbers) == highest else []
    longest = max(highest, together)
    return list(dict.fromkeys([longest, highest, len(numbers)]))


def settle(
    collective: Collective, evidence: Evidence, listed: Sequence[int], started: int | None, said: int | None
) -> RankCount:
    """The number of ranks: the first that the rows allow of what the user said, the log lists and a command started."""
    first = listed[0] if listed else None
    if said and first and said < min(listed):  # a list may be too short, and is never too long
        offers = [number for number in (*listed, said, started) if number]
    else:
        offers = [number for number in (said, *listed, started) if number]
    chosen = next((number for number in offers if evidence.allows(collective, number)), None)
    chosen = chosen or evidence.only(collective)
    if chosen is None:
        return _unsettled(evidence, offers, said)
    if said and chosen != said:
        return RankCount(chosen, f"it is of {chosen} ranks by its list or its rows, not of the {said} of --ranks")
    if said and (told := first or started) and told != said:
        return RankCount(
            chosen, f"read as the {said} ranks of --ranks, though it {'lists' if first else 'starts'} {told}"
        )
    if not said and first and chosen != first:
        return RankCount(chosen, f"it lists {first} ranks, and its rows are those of {chosen}")
    if not said and not first and chosen == started and evidence.only(collective) is None:
        return RankCount(chosen, f"{chosen} ranks, as its command line says")
    return RankCount(chosen)


def _unsettled(evidence: Evidence, offers: Sequence[int], said: int | None) -> RankCount:
    """Nothing fits, or nothing is told."""
    if said:
        return RankCount(said, f"its rows are not those of the {said} ranks of --ranks")
    if offers:
        return RankCount(None, f"it lists {offers[0]} ranks, and its rows are not those of so many")
    if evidence.ratio == NOTHING:
        return RankCount(None, "it lists no ranks, and its bandwidths do not tell how many")
    return RankCount(None, "it lists no ranks, and its bandwidths would be those of several numbers")


def trimmed(listed: Iterable[Listed]) -> int:
    """How many ranks are missing from a list, by the highest."""
    numbers = {rank for _, rank in listed}
    return max(numbers, default=-1) + 1 - len(numbers)
