"""The structures and numbers of collbench.platforms.gpu.cuda are those of NVIDIA's header."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from collbench.errors import PlatformError
from collbench.platforms.compiler import compiler
from collbench.platforms.gpu import cuda
from tools.stand_in.header import CALLS, expected
from tools.stand_in.ipc import build_driver
from tools.stand_in.real_names import header


def test_structures_and_numbers_are_those_of_the_header(tmp_path: Path) -> None:
    source = tmp_path / "driver.cpp"
    lines = [f'static_assert({text} == {value}, "{text}");' for text, value in expected()]
    lines += [f"CUresult (*call_{name})({arguments}) = {name};" for name, arguments in CALLS.items()]
    source.write_text("\n".join(["#include <cstddef>", "#include <cuda.h>", *lines]))
    command = [*compiler(), "-std=c++20", "-fsyntax-only", "-I", header().parent, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_function_that_is_called_was_compared() -> None:
    assert {*cuda.FUNCTIONS, "cuGetErrorString"} == {*CALLS}
    for name, (stored, *taken) in cuda.FUNCTIONS.items():
        assert len(CALLS[name].split(",")) == bool(stored) + len(taken), name


def test_an_address_is_traced_to_its_allocation_and_what_the_driver_refuses_is_named(tmp_path: Path) -> None:
    library = ctypes.CDLL(str(build_driver(tmp_path, devices=1)))
    for start, nbytes in ((2**40, 0x2000), (2**40 + 0x2000, 2**33)):
        library.made_up_allocate(ctypes.c_uint64(start), ctypes.c_size_t(nbytes))
    found = cuda.Driver(library)
    assert found.start_of_allocation(2**40) == found.start_of_allocation(2**40 + 0x1FFF) == 2**40
    assert found.start_of_allocation(2**40 + 2**32) == 2**40 + 0x2000
    with pytest.raises(PlatformError, match=r"^cuMemGetAddressRange_v2: invalid argument$"):
        found.start_of_allocation(2**40 - 1)
