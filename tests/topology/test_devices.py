import pytest

from collbench.topology.devices import Kind, Link, NvLink, Pcie


def test_nvlink_rates_add_up_over_the_links():
    """18 links of generation 4 carry the 450 GB/s each way of an H100's data sheet."""
    assert NvLink(generation=4, count=18).rate == 450e9


def test_a_line_rate_above_the_data_sheet_changes_nothing():
    """The line's surplus carries its encoding, not data."""
    assert NvLink(generation=4, count=18, line_rate=26.562e9).rate == 450e9


def test_a_line_rate_below_the_data_sheet_counts():
    """An RTX A6000 has slower links than an A100 of the same generation: 56.25 GB/s over four."""
    assert NvLink(generation=3, count=4, line_rate=14.0625e9).rate == 56.25e9


@pytest.mark.parametrize("link", [NvLink(generation=4), NvLink(count=2), NvLink(generation=99, count=2)])
def test_an_nvlink_that_is_not_known_well_enough_has_no_rate(link):
    """No rate is better than a guess."""
    assert link.rate is None


def test_pcie_rate_is_that_under_load():
    """An idle GPU drops to generation 1, and comes back up under load."""
    assert Pcie(generation=1, width=16, max_generation=5, max_width=16).rate == pytest.approx(63.0e9, rel=1e-3)


def test_pcie_rate_counts_the_lanes_in_use():
    """Half the lanes are half the rate, whatever the slot could do."""
    half, full = Pcie(4, 8, 4, 16), Pcie(4, 16, 4, 16)
    assert half.narrow
    assert half.rate == full.rate / 2


def test_pcie_of_unknown_generation_has_no_rate():
    """A virtual machine may hide the PCIe link."""
    assert Pcie().rate is None


def test_a_link_has_the_rate_of_what_carries_it():
    """The kind decides which of the facts counts."""
    nvlink, pcie = NvLink(4, 18), Pcie(5, 16, 5, 16)
    assert Link(0, 1, Kind.NVSWITCH, nvlink=nvlink).rate == nvlink.rate
    assert Link(0, 1, Kind.PCIE, pcie=pcie).rate == pcie.rate
    assert Link(0, 1, Kind.SHARED_MEMORY).rate is None
