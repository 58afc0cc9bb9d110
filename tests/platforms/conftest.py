"""The made-up machines never ask the driver of the real one."""

import pytest

from collbench.platforms import gpu_driver
from tests.platforms.opening import nothing_set, opened

__all__ = ["nothing_set", "opened"]


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_driver.load.cache_clear()
    monkeypatch.setattr(gpu_driver, "LIBRARY", "libnosuchdriver.so.1")
