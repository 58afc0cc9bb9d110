"""The made-up machines never ask the driver of the real one."""

import pytest

from collbench.platforms.gpu import cuda
from tests.platforms.gpu.opening import nothing_set, opened

__all__ = ["nothing_set", "opened"]


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda.load_driver.cache_clear()
    monkeypatch.setattr(cuda, "LIBRARY", "libnosuchdriver.so.1")
