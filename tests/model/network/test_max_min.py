"""Max-min fair rates: the properties that define them, an obvious solver beside it, and the size it must stand."""

from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.model.network import Integers, Reals, max_min

Network = tuple[list[list[int]], Reals]


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Some links and some flows over some of them; small integers, so that many levels are equal."""
    links = draw(st.integers(1, 7))
    flows = draw(st.lists(st.sets(st.integers(0, links - 1), min_size=1), min_size=1, max_size=14))
    capacity = draw(st.lists(st.one_of(st.integers(0, 6), st.floats(0.1, 50)), min_size=links, max_size=links))
    return [sorted(flow) for flow in flows], np.array(capacity, float)


def hops(flows: list[list[int]]) -> list[Integers]:
    return [np.array(column) for column in zip_longest(*flows, fillvalue=-1)]


def obvious(flows: list[list[int]], capacity: Reals) -> Reals:
    """Progressive filling as books have it: one link at a time, the one that fills first."""
    rates: dict[int, float] = {}
    while len(rates) < len(flows):
        levels = {}
        for link, room in enumerate(capacity):
            free = sum(link in way and flow not in rates for flow, way in enumerate(flows))
            used = sum(rates[flow] for flow, way in enumerate(flows) if link in way and flow in rates)
            if free:
                levels[link] = max(room - used, 0.0) / free
        full = min(levels, key=lambda link: levels[link])
        for flow, way in enumerate(flows):
            if full in way and flow not in rates:
                rates[flow] = levels[full]
    return np.array([rates[flow] for flow in range(len(flows))])


@given(networks(), st.sampled_from([1e-9, 0.25, 3.0, 1e9]))
@settings(deadline=None, derandomize=True, max_examples=150)
def test_rates_are_max_min_fair_whatever_the_units(network: Network, scale: float) -> None:
    """Those of the obvious solver however the ties fall, feasible, and each held by a full link that is named.

    On that link no other flow gets more, which is what makes an allocation max-min fair.
    """
    flows, capacity = network
    found = max_min(hops(flows), capacity)
    assert found.rates == pytest.approx(obvious(flows, capacity), rel=1e-6, abs=1e-9)
    carried = np.zeros(len(capacity))
    for flow, rate in zip(flows, found.rates, strict=True):
        carried[flow] += rate
    assert (carried <= capacity * (1 + 1e-7) + 1e-9).all()
    for flow, link in enumerate(found.bottleneck):
        assert link in flows[flow]
        assert carried[link] == pytest.approx(capacity[link], rel=1e-6, abs=1e-8)
        most = max(rate for way, rate in zip(flows, found.rates, strict=True) if link in way)
        assert found.rates[flow] >= most * (1 - 1e-6) - 1e-9
    assert max_min(hops(flows), capacity * scale).rates == pytest.approx(found.rates * scale, rel=1e-6)


def test_a_flow_that_is_held_elsewhere_leaves_its_share_and_a_chain_is_settled_in_order() -> None:
    found = max_min(hops([[0, 1], [0], [1]]), np.array([1.0, 10.0]))
    assert found.rates.tolist() == [0.5, 0.5, 9.5]
    assert found.bottleneck.tolist() == [0, 0, 1]
    count = 60
    flows = [[0], *([link, link + 1] for link in range(count - 1))]
    capacity = 2.0 ** np.arange(count)
    assert max_min(hops(flows), capacity).rates == pytest.approx(obvious(flows, capacity))
