"""The checks of checks.py under pytest; skipped with the reason where there is no GPU, or it cannot do them."""

from collections.abc import Callable, Iterator

import pytest

from collbench.errors import PlatformError, Unsupported
from collbench.implementations import Implementation
from collbench.platforms import Platform
from tests.gpu.checks import CHECKS, ON_GPU, PLACES, Place, opened
from tests.gpu.processes import ARRANGEMENTS, Arrangement, outcomes

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=PLACES, ids=str)
def place(request: pytest.FixtureRequest) -> Place:
    chosen: Place = request.param
    return chosen


@pytest.fixture(scope="module", params=ON_GPU, ids=lambda each: each.name)
def implementation(request: pytest.FixtureRequest) -> Implementation:
    chosen: Implementation = request.param
    return chosen


@pytest.fixture(scope="module")
def platform(place: Place, implementation: Implementation) -> Iterator[Platform]:
    try:
        with opened(place) as platform:
            yield platform
    except (PlatformError, Unsupported) as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_on_a_gpu(
    check: Callable[[Platform, Implementation], None], platform: Platform, implementation: Implementation
) -> None:
    try:
        check(platform, implementation)
    except Unsupported as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("arrangement", ARRANGEMENTS, ids=str)
def test_processes_of_an_outside_launcher(arrangement: Arrangement) -> None:
    """What is skipped there is printed with its reason by tests.gpu.run."""
    try:
        found = outcomes(arrangement)
    except Unsupported as reason:
        pytest.skip(str(reason))
    assert {name: outcome for name, outcome in found.items() if outcome.startswith("FAILED")} == {}
