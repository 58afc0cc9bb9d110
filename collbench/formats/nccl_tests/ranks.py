"""What the printed bandwidths tell of a test that does not say it: its number of ranks, or its collective."""

from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation

from collbench.collectives import COLLECTIVES, Collective
from collbench.datatypes import find_datatype
from collbench.errors import UsageError

MOST = 4096  # ranks that are tried
Bandwidths = Iterable[tuple[str, str]]  # algbw and busbw as printed


def _interval(word: str) -> tuple[float, float] | None:
    """What a number may have been before it was rounded."""
    try:
        value = Decimal(word)
    except InvalidOperation:
        return None
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or not -30 < exponent < 30 or value <= 0 or value.adjusted() > 30:
        return None
    half = Decimal(1).scaleb(exponent) / 2
    return float(value - half), float(value + half)


def factors(rows: Bandwidths) -> tuple[float, float]:
    """Between which the bus factor lies, all rows taken together; (0, inf) if they say nothing."""
    least, most = 0.0, float("inf")
    for algbw, busbw in rows:
        below, above = _interval(algbw), _interval(busbw)
        if below and above and below[0] > 0 and above[0] > 0:
            least, most = max(least, above[0] / below[1]), min(most, above[1] / below[0])
    return least, most


def possible_ranks(collective: Collective, rows: Bandwidths) -> list[int]:
    """The numbers of ranks that the bandwidths allow; none if they allow all, or contradict each other."""
    least, most = factors(rows)
    if collective.bus_factor(2) == collective.bus_factor(3) or least == 0:
        return []
    return [ranks for ranks in range(1, MOST + 1) if least <= collective.bus_factor(ranks) <= most]


def reckoned(collective: Collective, rows: Bandwidths, product: int) -> int | None:
    """Ranks by the bandwidths if they leave one number; else `product`, threads times GPUs, unless they exclude it."""
    possible = possible_ranks(collective, rows)
    if len(possible) == 1:
        return possible[0]
    return product if product and (not possible or product in possible) else None


Size = tuple[int, int, str]  # bytes, elements of a rank's share, type


def shares(sizes: Iterable[Size]) -> int | None:
    """Into how many equal shares the bytes of each row are cut; None if the rows do not agree on one number."""
    cuts = set()
    for nbytes, elements, dtype in sizes:
        try:
            own = elements * find_datatype(dtype).itemsize
        except UsageError:
            return None
        if nbytes and own:
            cuts.add(nbytes // own if nbytes % own == 0 else 0)
    return cuts.pop() if len(cuts) == 1 and 0 not in cuts else None


def possible_collectives(
    ranks: int | None, redop: str | None, root: int | None, sizes: Sequence[Size], rows: Bandwidths
) -> list[Collective]:
    """The collectives that rows may be of; None is not known."""
    (least, most), cut = factors(rows), shares(sizes)

    def fits(collective: Collective) -> bool:
        own = ranks or (cut if collective.sharded else None)
        return (
            (redop is None or collective.reduces == (redop not in ("", "none")))
            and (root is None or collective.rooted == (root >= 0))
            and any(least <= collective.bus_factor(some) <= most for some in ([own] if own else range(1, MOST + 1)))
            and (cut is None or cut == (own if collective.sharded else 1))
            and not (collective.sharded and own == 1 and ranks is None)
        )

    return list(filter(fits, COLLECTIVES.values()))
