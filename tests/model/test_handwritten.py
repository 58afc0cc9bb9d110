"""Hand-written rungs on described systems: links, choices, and what is published of kernels like them."""

import re
import statistics
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from collbench.algorithms import implementations
from collbench.errors import Unsupported
from collbench.model.handwritten import PUBLISHED, hardware, is_published, modelled, reached
from collbench.model.predict import HANDWRITTEN, curve, predict
from collbench.platforms.cost import Wait
from collbench.topology.files import load, names
from tests.conftest import ROOT
from tests.model.published_kernels import SWEEPS, Sweep
from tests.model.test_predict import case

SIZES = [1 << power for power in range(4, 33, 2)]
H100, A100 = load("dgx-h100"), load("dgx-a100")
LARGE = 16 << 20  # bytes from which on a rate decides


def test_every_rung_is_predicted_and_no_faster_than_its_link() -> None:
    for rung, way in modelled().items():
        sizes = [nbytes for nbytes in SIZES if rung != "one-shot-ll" or nbytes <= 1 << 18]
        found = curve(H100, [case(8, nbytes) for nbytes in sizes], rung)
        times = [row.seconds for row in found]
        assert times == sorted(times), rung
        for nbytes, expectation in zip(sizes, found, strict=True):
            sent = nbytes * (way.wire.nbytes / 4 if way.wire else 1)
            assert expectation.seconds > sent * (1 + 1 / 8) / 370.8e9, (rung, nbytes)
            assert expectation.low < expectation.seconds < expectation.high, (rung, nbytes)


def test_auto_is_the_best_rung_and_says_which() -> None:
    picked = set()
    for best in curve(H100, [case(8, nbytes) for nbytes in SIZES], "auto"):
        times = {}
        for rung in (name for name, way in modelled().items() if not way.wire):
            with suppress(Unsupported):
                times[rung] = predict(H100, best.case, rung).seconds
        fastest = min(times, key=lambda rung: times[rung])
        assert (best.seconds, best.note.picked) == (times[fastest], fastest)
        picked.add(fastest)
    assert {"one-shot-ll", "nvls"} <= picked


def test_a_rung_uses_the_links_it_can_reach_and_refuses_what_it_cannot_do_there() -> None:
    with pytest.raises(Unsupported, match=r"reaches the GPUs of one node"):
        predict(H100.of(2), case(16, 64), "two-shot")
    with pytest.raises(Unsupported, match="do not allow"):
        predict(load("pcie4-4090"), case(load("pcie4-4090").ranks, 64), "one-shot")
    with pytest.raises(Unsupported, match="switches that add"):
        predict(A100, case(8, 64), "nvls")
    assert predict(A100, case(8, 64), "auto").note.picked != "nvls"
    switch, mesh = A100.part(4), replace(A100.part(4), fabric="mesh")
    ring = [predict(system, case(4, 1 << 30), "ring-pipelined").seconds for system in (switch, mesh)]
    both = [predict(system, case(4, 1 << 30), "two-shot").seconds for system in (switch, mesh)]
    assert ring[1] > 2 * ring[0]
    assert both[1] == both[0]
    slot = predict(load("pcie4-4090-p2p"), case(load("pcie4-4090-p2p").ranks, 1 << 30), "two-shot").seconds
    assert slot > 5 * both[0]


def ratios(rung: str, published: Sweep) -> Iterator[float]:
    part = H100.part(published.ranks)
    for nbytes, seconds in published.seconds.items():
        yield seconds / predict(part, case(published.ranks, nbytes), rung).seconds


def test_what_is_published_lies_in_the_band_of_its_prediction_and_mostly_near_it() -> None:
    """Every single time within the band; half of each table within a third; the page has the ends of all ratios."""
    page = (ROOT / "docs" / "model.md").read_text()
    assert {*SWEEPS} == {*PUBLISHED}
    for rung, sweeps in SWEEPS.items():
        every = []
        for published in sweeps:
            found = list(ratios(rung, published))
            every += found
            assert all(HANDWRITTEN[0] < ratio < HANDWRITTEN[1] for ratio in found), (published.source, found)
            assert 0.75 < statistics.median(found) < 1.36, (published.source, found)
        (told,) = re.findall(rf"^\| `{rung}` \|.*\| ([^|]+) \|$", page, re.MULTILINE)
        assert told == " to ".join(dict.fromkeys(f"{end(every):.2f}" for end in (min, max))), rung


def test_the_share_of_a_link_is_that_of_the_largest_published_sizes() -> None:
    """Less launch and barriers, within 3 %; a share that is copied from elsewhere would not be."""
    links = hardware(H100)
    for rung, known in PUBLISHED.items():
        for published in SWEEPS[rung] if known < 1 else ():
            shares = []
            for nbytes, seconds in published.seconds.items():
                cost = implementations()[rung].cost(case(published.ranks, nbytes))  # type: ignore[misc]
                moving = seconds - links.launch - cost.steps * links.waits[Wait.BARRIER]
                shares += [cost.link * nbytes / moving / links.link] * (nbytes >= LARGE)
            assert not shares or statistics.median(shares) == pytest.approx(known, rel=0.03), rung
    large = case(8, 128 << 20)
    nvls, nccl = (predict(H100, large, name).seconds for name in ("nvls", "nccl"))
    assert nvls > 1.4 * large.nbytes * (1 + 1 / 8) / 370.8e9
    assert nvls > 0.95 * nccl


def test_a_rung_with_nothing_measured_behind_it_is_marked_as_a_bound() -> None:
    for name in names():
        system = load(name).of(1)
        for rung in modelled():
            with suppress(Unsupported):  # it cannot run there
                found = predict(system, case(system.ranks, 1024), rung)
                known = rung in PUBLISHED and (system.arch, system.fabric) == ("sm90", "nvswitch")
                assert found.note.bound is (not known) is (not is_published(system, rung)), (name, rung)
                assert ("a bound" in str(found.note)) is (not known), (name, rung)
        assert not predict(load(name), case(load(name).ranks, 1024)).note.bound, name
    assert not predict(H100, case(8, 1024), "auto").note.bound
    assert predict(A100, case(8, 1024), "auto").note.bound
    assert reached(H100, "narrow-int8") == reached(H100, "two-shot") < 1
    assert reached(load("pcie4-4090-p2p"), "two-shot") == 1
    assert reached(H100, "parameter-server") == 1
