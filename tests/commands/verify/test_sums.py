"""Sums that are exact, errors in ULPs, and what errors betray: held against fractions and simulated additions."""

import hashlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.commands.verify.measured import LAWS, SumError, Terms, exact, sum_error, values
from collbench.datatypes import DATATYPES, PREFIX, WIRES, Array, Datatype
from collbench.results import Outcome
from tests.commands.verify import made_up_sums

FLOATS = [dtype for dtype in DATATYPES.values() if dtype.kind == "float"]
DIGESTS = {"normal": "24bd0f64d17c4fa3", "wide": "53acaab9c4934da2", "gradient": "ac46301b1d8f5a28"}
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e290, max_value=1e290)


@given(st.lists(NUMBERS, min_size=1, max_size=9), NUMBERS)
@settings(deadline=None)
def test_sums_are_rounded_once_however_far_terms_are_apart(terms: list[float], result: float) -> None:
    off = sum(map(Fraction, terms)) - Fraction(result)
    error = exact(*(np.array([term]) for term in (*terms, -result)))
    assert error.tolist() == [float(off)]


def rounded(dtype: Datatype, numbers: Array) -> Array:
    if dtype.name != "bfloat16":
        return numbers.astype(dtype.storage).astype(np.float64)
    bits = numbers.astype(np.float32).view(np.uint32).astype(np.uint64)
    nearest_bits = bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1)) & np.uint64(0xFFFF0000)
    return nearest_bits.astype(np.uint32).view(np.float32).astype(np.float64)


def added(dtype: Datatype, keeps: str, ranks: int, law: str = "normal", count: int = 4096) -> SumError:
    """The error of sums of which partial ones are kept in a type."""
    terms = np.array([values(law, dtype, rank, count) for rank in range(ranks)])
    total = np.zeros(count)
    for row in terms:
        total = rounded(DATATYPES[keeps], total + dtype.decode(row).astype(np.float64))
    return sum_error(dtype, Terms(dtype, terms), dtype.encode(rounded(dtype, total)))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("law", LAWS)
def test_errors_betray_the_type_that_keeps_partial_sums(dtype: Datatype, law: str) -> None:
    wider = {"float": "double", "half": "float", "bfloat16": "float"}
    for ranks in (3, 4, 8):
        error = added(dtype, dtype.name, ranks, law)
        assert (error.accumulation, error.elements) == (dtype.name, 4096)
        assert 0.1 < error.median < 2 < error.most
        assert 0.3 < error.of_bound <= 1
        if dtype.name in wider:
            once = added(dtype, wider[dtype.name], ranks, law)
            assert once.accumulation == wider[dtype.name]
            assert once.median <= error.median
            assert once.of_bound < error.of_bound
    assert added(dtype, dtype.name, 2, law).accumulation == "", "one addition is rounded once in any type"
    assert added(dtype, dtype.name, 3, law, count=63).accumulation == "", "so few may all be right by chance"


def test_what_is_off_by_more_than_additions_can_be_is_kept_in_less_than_the_type() -> None:
    dtype = DATATYPES["float"]
    for ranks in (2, 3):
        assert added(dtype, "half", ranks).accumulation == "narrower"


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_sums_that_are_a_tenth_too_large_are_wrong_in_every_type(dtype: Datatype) -> None:
    for ranks in (2, 3, 4):
        terms = Terms(dtype, [values("normal", dtype, rank, 256) for rank in range(ranks)])
        right, large = (
            made_up_sums.row(error=sum_error(dtype, terms, dtype.encode(terms.total * by))) for by in (1, 1.1)
        )
        assert (right.outcome, large.outcome) == (Outcome.OK, Outcome.WRONG), ranks


def test_sums_in_a_wire_format_are_wrong_beyond_its_own_bound() -> None:
    dtype = DATATYPES["float"]
    terms = Terms(dtype, [values("wide", dtype, rank, 1000) for rank in range(3)])
    for wire in WIRES.values():
        exact_sums = terms.total.astype(np.float32)
        for by, outcome in ((1, Outcome.OK), (1.2, Outcome.WRONG)):
            error = sum_error(dtype, terms, by * exact_sums, wire)
            assert made_up_sums.row(f"{PREFIX}{wire.name}", error=error).outcome is outcome, wire.name


def test_an_error_is_counted_in_units_in_the_last_place_of_the_exact_sum() -> None:
    for dtype, sums, off in (
        ("float", (1.0, 1.5, 1.75), 2.0**-23),
        ("half", (1.0, 1.5, 1.75), 2.0**-10),
        ("bfloat16", (1.0, 1.5, 1.75), 2.0**-7),
        ("double", (1.0, 1.5, 1.75), 2.0**-52),
        ("half", (2.0**-20, 0.0, 3 * 2.0**-24), 2.0**-24),  # below the smallest normal number
    ):
        known = DATATYPES[dtype]
        terms = known.encode(np.array([sums, (0.0, 0.0, 0.0)]))
        got = known.encode(np.array(sums) + 3 * off)
        error = sum_error(known, Terms(known, terms), got)
        assert (error.median, error.most) == (3.0, 3.0), dtype
    terms = Terms(known, known.encode(np.array([[1.5], [-1.5]])))
    cancelled = sum_error(known, terms, known.encode(np.array([2.0**-8])))
    assert cancelled.most == 2.0 ** (known.precision - 1), "a sum of nothing has no unit, the result has one"


def test_values_have_the_same_bits_everywhere_and_of_any_number() -> None:
    for law, digest in DIGESTS.items():
        numbers = LAWS[law](3, 0, 5000)
        assert hashlib.blake2b(numbers.tobytes(), digest_size=8).hexdigest() == digest, law
        assert np.array_equal(LAWS[law](3, 1500, 3000), numbers[1500:4500])
        assert not np.array_equal(LAWS[law](2, 0, 5000), numbers)
    assert abs(float(np.std(LAWS["normal"](0, 0, 10**5))) - 1) < 0.01
    long, dtype = 2**18 + 5, DATATYPES["half"]
    assert np.array_equal(values("wide", dtype, 1, long)[-9:], dtype.encode(LAWS["wide"](1, long - 9, 9)))
    exponents = np.frexp(LAWS["wide"](0, 0, 10**5))[1]
    assert (int(exponents.min()), int(exponents.max())) <= (-26, 8)
    assert len(set(exponents.tolist())) > 30
    gradients = np.array([LAWS["gradient"](rank, 0, 8192) for rank in range(64)])
    layers = gradients.std(axis=0).reshape(8, 1024).mean(axis=1)
    assert layers.max() > 3 * layers.min(), "layers have scales of their own"
    means = gradients.mean(axis=0) / gradients.std(axis=0)
    assert 0.15 < means.std() < 0.4, "a part of it is common to all ranks"


def test_a_result_that_is_no_number_is_as_far_off_as_can_be() -> None:
    dtype = DATATYPES["float"]
    terms = np.array([values("normal", dtype, rank, 256) for rank in range(3)])
    for nothing in (np.inf, -np.inf, np.nan):
        got = terms.sum(axis=0)
        got[7] = nothing
        error = sum_error(dtype, Terms(dtype, terms), got)
        assert error.accumulation == "narrower"
        assert 1e90 < error.of_bound < 1e300
        assert 1e6 < error.most < 1e300
        assert error.median < 2
