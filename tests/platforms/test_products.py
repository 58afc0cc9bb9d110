"""Chains of matrix products: every one of them counts, and none can be left out, made twice or made wrong unseen."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.platforms.cpu.platform import CpuProducts
from collbench.platforms.interface import Chain
from collbench.platforms.processes import Alone
from tests.conftest import of_a_user


@settings(derandomize=True, max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(0, 3), st.integers(0, 200))
def test_what_a_chain_should_hold_is_what_products_make(size: int, rank: int, count: int) -> None:
    chain = Chain(size, rank)
    held = chain.start.astype(np.int64)
    factor = chain.factor.astype(np.int64)
    for _ in range(count):
        held = factor @ held
    got = held.astype(np.float32)
    assert chain.failure(count, got) is None
    assert size < 16 or Chain(size, rank + 1).failure(count, got), "one rank's must not pass for another's"


def made(count: int, size: int = 32) -> CpuProducts:
    products = CpuProducts(Alone(), 1, size)  # type: ignore[arg-type]
    products.enqueue(1, count)
    return products


def test_a_product_that_was_left_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (0, 1, 2, 17, 1000):
        assert made(count).check() is None, count
    whole, made_so_far = np.matmul, []

    def forgetful(*arguments: object, **named: object) -> object:
        made_so_far.append(1)
        return None if len(made_so_far) == 3 else whole(*arguments, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(np, "matmul", forgetful)
    flaw = made(8).check()
    assert flaw
    assert "after 8 matrix products" in str(flaw)


def test_one_wrong_element_is_seen_and_named_until_the_chain_starts_anew() -> None:
    products = made(5)
    products._last[3, 4] += 1
    flaw = products.check()
    assert flaw
    assert (flaw.rank, flaw.row, flaw.column, flaw.wrong) == (1, 3, 4, 1)
    assert float(flaw.got) == float(flaw.expected) + 1
    products._last[0, 0] = np.nan
    products._last[3, 4] -= 1
    flaw = products.check()
    assert flaw
    assert (flaw.row, flaw.column, flaw.wrong) == (0, 0, 1)
    products.reset()
    products.enqueue(1, 3)
    assert products.check() is None


def test_a_rank_multiplies_with_one_thread_whatever_the_environment_says() -> None:
    script = (
        "import threadpoolctl\n"
        "from collbench.platforms.cpu.platform import CpuProducts\n"
        "from collbench.platforms.processes import Alone\n"
        "CpuProducts(Alone(), 0, 8)\n"
        "print({one['num_threads'] for one in threadpoolctl.threadpool_info() if one['user_api'] == 'blas'})"
    )
    variables = of_a_user() | {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{1}"
