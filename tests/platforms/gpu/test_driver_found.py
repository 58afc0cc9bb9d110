"""The driver's own functions, by ctypes, against a library that tests compile."""

import ctypes
from pathlib import Path

import pytest

from collbench.errors import PlatformError
from collbench.platforms.gpu import driver as gpu_driver
from tests.platforms.gpu.fake_ipc import build_driver


@pytest.fixture
def driver(tmp_path: Path) -> gpu_driver.Driver:
    """A driver that knows two allocations, one right behind the other."""
    library = ctypes.CDLL(str(build_driver(tmp_path, devices=1)))
    for start, nbytes in ((2**40, 0x2000), (2**40 + 0x2000, 2**33)):
        library.made_up_allocate(ctypes.c_uint64(start), ctypes.c_size_t(nbytes))
    return gpu_driver.Driver(library)


def test_an_address_is_traced_to_its_allocation(driver: gpu_driver.Driver) -> None:
    """Addresses and sizes beyond 32 bits come through whole."""
    assert driver.allocation(2**40) == (2**40, 0x2000)
    assert driver.allocation(2**40 + 0x1FFF) == (2**40, 0x2000)
    assert driver.allocation(2**40 + 2**32) == (2**40 + 0x2000, 2**33)


def test_what_the_driver_refuses_is_named(driver: gpu_driver.Driver) -> None:
    with pytest.raises(PlatformError, match=r"^cuMemGetAddressRange_v2: invalid argument$"):
        driver.allocation(2**40 - 1)


def test_a_function_that_an_old_driver_lacks_is_an_error_and_no_crash(driver: gpu_driver.Driver) -> None:
    with pytest.raises(PlatformError, match="the driver is too old to have cuMulticastCreate: update it"):
        driver.multicast_create(2, 2**21)


def test_no_driver_is_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_driver, "LIBRARY", "libnosuchdriver.so.1")
    with pytest.raises(PlatformError, match=r"the CUDA driver cannot be loaded"):
        gpu_driver.load.__wrapped__()
