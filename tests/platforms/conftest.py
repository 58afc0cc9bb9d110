"""The made-up machines never ask the driver of the real one."""

import pytest

from collbench.platforms.gpu import driver
from tests.platforms.gpu.opening import nothing_set, opened

__all__ = ["nothing_set", "opened"]


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    driver.load.cache_clear()
    monkeypatch.setattr(driver, "LIBRARY", "libnosuchdriver.so.1")
