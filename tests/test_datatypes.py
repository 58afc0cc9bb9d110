"""Inputs whose result is exactly known, whatever the order of the additions."""

import random
from itertools import product

import numpy as np
import pytest

from collbench.datatypes import (
    DATATYPES,
    NONE,
    REDUCTIONS,
    Array,
    Datatype,
    Reduction,
    find_datatype,
    find_reduction,
    inputs,
    recipe,
    reduced,
)
from collbench.errors import UsageError

COUNT = 500
EVERY = list(product(DATATYPES.values(), REDUCTIONS.values()))


def combine(dtype: Datatype, redop: Reduction, a: Array, b: Array) -> Array:
    """One step as a device takes it: in the storage type, 16-bit types through float and rounded back."""
    wide = np.float32 if dtype.itemsize == 2 else a.dtype
    left, right = dtype.decode(a).astype(wide), dtype.decode(b).astype(wide)
    steps = {"sum": np.add, "avg": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
    return dtype.encode(steps[redop.name](left, right))


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 17])
def test_any_order_of_combining_gives_the_expected_bits(ranks: int) -> None:
    for dtype, redop in EVERY:
        how = recipe(dtype, redop, ranks, seed=3)
        parts = [inputs(dtype, redop, how, rank, 0, COUNT) for rank in range(ranks)]
        random.Random(ranks).shuffle(parts)
        while len(parts) > 1:  # as a tree, from the back: an order that no ring and no loop takes
            parts.insert(0, combine(dtype, redop, parts.pop(), parts.pop()))
        result = parts[0]
        if redop.name == "avg":
            result = dtype.encode(dtype.decode(result).astype(np.float64) / ranks)
        assert result.tobytes() == reduced(dtype, redop, how, 0, COUNT).tobytes(), (dtype.name, redop.name)


def test_another_rank_seed_or_place_gives_other_data() -> None:
    for dtype, redop in product(DATATYPES.values(), (NONE, *REDUCTIONS.values())):
        how = recipe(dtype, redop, 4, seed=1)
        usual = inputs(dtype, redop, how, 1, 0, COUNT)
        others = {
            "rank": inputs(dtype, redop, how, 2, 0, COUNT),
            "seed": inputs(dtype, redop, recipe(dtype, redop, 4, seed=2), 1, 0, COUNT),
            "place": inputs(dtype, redop, how, 1, 1, COUNT),
        }
        for what, other in others.items():
            assert np.mean(usual != other) > 0.2, (what, dtype.name, redop.name)


def test_a_left_out_rank_shows_whichever_it_is() -> None:
    for dtype, redop in EVERY:
        how = recipe(dtype, redop, 3, seed=5)
        whole = reduced(dtype, redop, how, 0, COUNT).tobytes()
        parts = [inputs(dtype, redop, how, rank, 0, COUNT) for rank in range(3)]
        for missing in range(3):
            left, right = (part for rank, part in enumerate(parts) if rank != missing)
            assert combine(dtype, redop, left, right).tobytes() != whole, (dtype.name, redop.name, missing)


def test_elements_depend_on_their_index_alone_also_beyond_32_bits() -> None:
    far, redop = 2**32 - 2, REDUCTIONS["sum"]
    for name, dtype in DATATYPES.items():
        how = recipe(dtype, redop, 2, seed=1)
        whole = inputs(dtype, redop, how, 0, far, 10)
        assert whole[3:].tobytes() == inputs(dtype, redop, how, 0, far + 3, 7).tobytes(), name
        assert whole[2:].tobytes() != inputs(dtype, redop, how, 0, 0, 8).tobytes(), name


def test_many_ranks_stay_exact_in_few_bits() -> None:
    dtype, redop = DATATYPES["bfloat16"], REDUCTIONS["sum"]
    how = recipe(dtype, redop, 300, seed=1)
    assert how.stride * 256 >= 300
    values = dtype.decode(reduced(dtype, redop, how, 0, COUNT))
    assert 0 < np.abs(values).max() <= 256


def test_names_of_frameworks_are_understood_and_unknown_ones_list_the_choices() -> None:
    for alias, name in (("fp32", "float"), ("bf16", "bfloat16"), ("fp16", "half"), ("int", "int32")):
        assert find_datatype(alias).name == name
    with pytest.raises(UsageError, match=r"unknown dtype 'float8'; .*choose from: float, double"):
        find_datatype("float8")
    with pytest.raises(UsageError, match="unknown reduction 'mean'; choose from: sum"):
        find_reduction("mean")
