"""What is published of kernels like the rungs, and that predictions agree with it, or are marked."""

import re
import statistics
from collections.abc import Iterator

import pytest

from collbench.cost import Wait
from collbench.errors import Unsupported
from collbench.implementations import implementations
from collbench.model.evidence import EVIDENCE, Published, proven, reached
from collbench.model.ladder import hardware, ladder
from collbench.model.predict import RUNG, predict
from collbench.topology.files import load, names
from tests.conftest import ROOT
from tests.model.test_predict import case

H100 = load("dgx-h100")
LARGE = 16 << 20  # bytes from which on a rate decides


def ratios(rung: str, published: Published) -> Iterator[float]:
    """Published over predicted, by size."""
    part = H100.part(published.ranks)
    for nbytes, seconds in published.seconds.items():
        yield seconds / predict(part, case(published.ranks, nbytes), rung).seconds


@pytest.mark.parametrize("rung", EVIDENCE)
def test_what_is_published_lies_in_the_band_of_its_prediction_and_mostly_near_it(rung: str) -> None:
    """Every single time within the band; half of each table within a third."""
    for published in EVIDENCE[rung].published:
        found = list(ratios(rung, published))
        assert all(RUNG[0] < ratio < RUNG[1] for ratio in found), (published.source, found)
        assert 0.75 < statistics.median(found) < 1.36, (published.source, found)


@pytest.mark.parametrize("rung", EVIDENCE)
def test_a_published_table_has_a_source_and_grows_with_its_sizes(rung: str) -> None:
    assert rung in ladder()
    for published in EVIDENCE[rung].published:
        sizes, seconds = zip(*published.seconds.items(), strict=True)
        assert published.source
        assert list(sizes) == sorted(sizes)
        assert list(seconds) == sorted(seconds)
        assert 1e-6 < seconds[0] < seconds[-1] * 1.0001


@pytest.mark.parametrize("rung", [name for name, known in EVIDENCE.items() if known.reached < 1])
def test_the_share_of_a_link_is_that_of_the_largest_published_sizes(rung: str) -> None:
    """Less launch and barriers, within 3 %; a share that is copied from elsewhere would not be."""
    links = hardware(H100)
    for published in EVIDENCE[rung].published:
        sizes = {nbytes: seconds for nbytes, seconds in published.seconds.items() if nbytes >= LARGE}
        shares = []
        for nbytes, seconds in sizes.items():
            cost = implementations()[rung].cost(case(published.ranks, nbytes))  # type: ignore[misc]
            moving = seconds - links.launch - cost.steps * links.waits[Wait.BARRIER]
            shares.append(cost.link * nbytes / moving / links.link)
        assert not shares or statistics.median(shares) == pytest.approx(EVIDENCE[rung].reached, rel=0.03)


def test_nvls_is_no_longer_as_fast_as_its_wire() -> None:
    """At 128 MiB NCCL was measured as fast as such a kernel; nobody's takes all of the link."""
    large = case(8, 128 << 20)
    nvls, nccl = (predict(H100, large, name).seconds for name in ("nvls", "nccl"))
    assert nvls > 1.4 * large.nbytes * (1 + 1 / 8) / 370.8e9
    assert nvls > 0.95 * nccl


@pytest.mark.parametrize("rung", ladder())
def test_a_rung_with_nothing_measured_behind_it_is_marked_as_a_bound(rung: str) -> None:
    """On every system: what is known of Hopper behind its switches says nothing of PCIe, nor of other GPUs."""
    for name in names():
        system = load(name).of(1)
        try:
            found = predict(system, case(system.ranks, 1024), rung)
        except Unsupported:  # it cannot run there
            continue
        known = rung in EVIDENCE and (system.arch, system.fabric) == ("sm90", "nvswitch")
        assert found.note.bound is (not known) is (not proven(system, rung)), name
        assert ("a bound" in str(found.note)) is (not known)


def test_auto_is_a_bound_where_what_it_picks_is() -> None:
    assert not predict(H100, case(8, 1024), "auto").note.bound
    assert predict(load("dgx-a100"), case(8, 1024), "auto").note.bound


def test_the_library_is_never_a_bound() -> None:
    """Its equation is fitted to measurements (accuracy.py)."""
    assert not any(predict(load(name), case(load(name).ranks, 1024)).note.bound for name in names())


def test_a_narrow_wire_reaches_what_a_two_shot_does_and_over_pcie_nothing_is_known() -> None:
    assert reached(H100, "narrow-int8") == reached(H100, "two-shot") < 1
    assert reached(load("pcie4-4090-p2p"), "two-shot") == 1
    assert reached(H100, "parameter-server") == 1


@pytest.mark.parametrize("rung", EVIDENCE)
def test_the_page_says_how_far_off_each_is(rung: str) -> None:
    """Its table has a row for every rung of which times are published, with the least and the greatest ratio."""
    page = (ROOT / "docs" / "model.md").read_text()
    (told,) = re.findall(rf"^\| `{rung}` \|.*\| ([^|]+) \|$", page, re.MULTILINE)
    found = [ratio for published in EVIDENCE[rung].published for ratio in ratios(rung, published)]
    assert told == " to ".join(dict.fromkeys(f"{end(found):.2f}" for end in (min, max)))
