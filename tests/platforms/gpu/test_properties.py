"""Whatever the case and whatever ran before: every hand-written implementation leaves exactly the right result.

On the machine that tests make up (fake_cuda.py), whose kernels are the real ones with real threads.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collbench.cases import Case, Sweep
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, NONE, REDUCTIONS
from collbench.errors import Unsupported
from collbench.implementations import implementations, needs
from collbench.platforms.gpu import platform as gpu
from collbench.platforms.layout import Layout
from collbench.platforms.processes import Alone
from tests.platforms.gpu.fake_cuda import Machine

LADDER = [  # without what needs a switch: test_multicast.py
    implementation
    for implementation in implementations().values()
    if not implementation.library and "gpu" in implementation.platforms and not implementation.multicast
]
ARITHMETIC = [("float", "sum"), ("half", "avg"), ("bfloat16", "max"), ("uint8", "prod"), ("int64", "min")]
MOST = 5000  # elements: several laps of nothing, but packs, tails and empty chunks of all kinds

CALLS = st.lists(
    st.tuples(
        st.sampled_from([(rung, name) for rung in LADDER for name in rung.collectives]),
        st.integers(1, MOST),
        st.sampled_from(ARITHMETIC),
        st.booleans(),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=6,
)


@pytest.fixture(scope="module", params=[2, 3, 4], ids=lambda ranks: f"{ranks} ranks")
def platform(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A platform that all examples share, so that each starts from what the last left behind."""
    patch = pytest.MonkeyPatch()
    machine = Machine(1, multiprocessors=8)
    patch.setattr(gpu, "load_cupy", machine.cupy)
    names = tuple(rung.name for rung in LADDER)
    wanted = Sweep(
        tuple(COLLECTIVES.values()), (MOST * 8 * 4,), (DATATYPES["int64"],), (REDUCTIONS["sum"],), request.param, names
    )
    opened = gpu.open_platform(wanted, Layout.of(wanted, needs(names, request.param, "gpu")), Alone())
    yield opened
    opened.close()
    machine.stop()
    patch.undo()


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(calls=CALLS)
def test_any_sequence_of_calls_is_right(platform: Any, calls: list[Any]) -> None:
    """Different implementations, lengths, types and places after each other on the same windows."""
    for seed, ((implementation, collective), count, (dtype, redop), in_place, root) in enumerate(calls):
        chosen, element = COLLECTIVES[collective], DATATYPES[dtype]
        case = Case(
            collective=chosen,
            nbytes=count * element.itemsize * (platform.ranks if chosen.sharded else 1),
            dtype=element,
            redop=REDUCTIONS[redop] if chosen.reduces else NONE,
            root=root % platform.ranks if chosen.rooted else 0,
            ranks=platform.ranks,
            in_place=in_place,
        )
        try:
            implementation.refuse(case)
        except Unsupported:
            continue
        prepared = implementation.prepare(case, platform)
        platform.fill(case, seed, prepared.wire)
        platform.time(prepared, 1)
        assert platform.check(case, seed, prepared.wire) is None, implementation.name
