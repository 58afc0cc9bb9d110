"""What switches, routing and what-ifs make of a prediction."""

from itertools import pairwise

import pytest

from collbench.cases import geometric
from collbench.model.network.on_network import network_curve, network_effect
from collbench.model.predict import curve
from collbench.topology import files
from tests.conftest import case

SIZES = geometric(8, 2**36, 1.7)
NARROW = [("dgx-h100", ("oversubscription=4",)), ("gcp-a4", ()), ("dgx-b200", ("ecmp",)), ("aws-p4d", ("job=0.5",))]


def cases(collective: str, ranks: int) -> list:  # type: ignore[type-arg]
    return [case(collective, nbytes=nbytes, ranks=ranks) for nbytes in SIZES]


@pytest.mark.parametrize("collective", ["allreduce", "allgather", "broadcast", "alltoall"])
def test_a_network_that_slows_nothing_changes_nothing(collective: str) -> None:
    """To the last digit."""
    system = files.load("dgx-h100").of(16)
    wanted = cases(collective, system.ranks)
    assert network_curve(system, wanted) == curve(system, wanted)


@pytest.mark.parametrize("nodes", [64, 512])
@pytest.mark.parametrize("collective", ["allreduce", "allgather", "broadcast"])
@pytest.mark.parametrize(("name", "what_ifs"), NARROW)
def test_a_narrow_network_slows_in_bounds_and_never_less_for_more_bytes(
    name: str, what_ifs: tuple[str, ...], collective: str, nodes: int
) -> None:
    """Never faster than without, never by more than the NICs lose, though algorithms change along the sizes."""
    system = files.load(name).of(nodes)
    wanted = cases(collective, system.ranks)
    before, after = curve(system, wanted), network_curve(system, wanted, what_ifs=what_ifs)
    factors = [network_effect(system, collective, guess.algorithm, what_ifs).factor for guess in before]
    assert min(factors) < 1
    ratios = [slow.seconds / fast.seconds for fast, slow in zip(before, after, strict=True)]
    assert all(0.999999 <= ratio <= 1.000001 / min(factors) for ratio in ratios)
    assert ratios[-1] > 1.01
    assert all(small.seconds <= large.seconds * (1 + 1e-9) for small, large in pairwise(after))
    assert [(guess.algorithm, guess.protocol) for guess in after] == [
        (guess.algorithm, guess.protocol) for guess in before
    ]
    for fast, slow in zip(before, after, strict=True):
        assert slow.low / slow.seconds == pytest.approx(fast.low / fast.seconds)


def test_a_size_is_predicted_alike_alone_and_among_others() -> None:
    """Whichever sizes a sweep has."""
    system = files.load("dgx-h100").of(64)
    wanted = cases("allreduce", system.ranks)
    together = network_curve(system, wanted, what_ifs=("ecmp",))
    for place in range(0, len(wanted), 7):
        (alone,) = network_curve(system, [wanted[place]], what_ifs=("ecmp",))
        assert alone.seconds == pytest.approx(together[place].seconds)


def test_a_network_is_noted_where_it_slows() -> None:
    """With what the NICs keep."""
    system = files.load("dgx-h100").of(64)
    guess = network_curve(system, [case(nbytes=2**30, ranks=512)], what_ifs=("oversubscription=4",))[0]
    share = network_effect(system, "allreduce", guess.algorithm, ("oversubscription=4",)).factor
    assert str(guess.note) == f"NICs at {share:.0%}"
