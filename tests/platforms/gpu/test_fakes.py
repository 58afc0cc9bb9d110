"""What the tests make up has the names and parameters of what it stands for: CuPy, NCCL through it, and NVML.

They are compared with the installed packages, none of which needs a GPU for that.
"""

import inspect
from collections.abc import Iterator

import pytest

from tools.stand_in import real_names
from tools.stand_in.cuda import Machine
from tools.stand_in.nvml import FakeNvml
from tools.stand_in.parameters import documented, expect_the_same, offered, signature


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine(2)
    yield made
    made.stop()


def test_the_made_up_cupy_has_the_names_parameters_defaults_and_numbers_of_the_real_one(machine: Machine) -> None:
    real = real_names.cupy()
    compared = []
    for name, mine, theirs in offered(machine, real):
        if isinstance(theirs, int):
            assert mine == theirs, name
        elif callable(theirs) and not name.endswith("Error"):
            expect_the_same(name, signature(mine), signature(theirs), real.cuda.runtime)
            compared.append(name)
    assert {"cupy_backends.cuda.api.runtime.memcpyAsync", "Stream.begin_capture", "Graph.launch"} <= {*compared}
    assert {"cupy.RawModule", "cupy.cuda.Event", "cupy.cuda.compiler.CompileException"} <= {*compared}
    assert {"cupy.asarray", "cupy.asnumpy", "ndarray.fill", "cupy.cuda.get_cublas_handle"} <= {*compared}


def test_the_made_up_nccl_and_cublas_have_the_names_and_parameters_of_the_real_ones(machine: Machine) -> None:
    """CuPy's module for it, which is asked beside a library whose functions do nothing."""
    told, mine = real_names.nccl(), machine.cupy().cuda.nccl
    for name in (name for name in dir(mine) if not name.startswith("_")):
        assert name in told["module"], name
        if inspect.isroutine(getattr(mine, name)):
            expect_the_same(name, signature(getattr(mine, name)), documented(told["module"][name]))
    made = mine.NcclCommunicator
    for name in (name for name in dir(made) if not name.startswith("_")):
        expect_the_same(name, signature(getattr(made, name)), documented(told["communicator"][name]))
    expect_the_same("NcclCommunicator", signature(made), documented(told["module"]["NcclCommunicator"]))
    assert type(mine.get_unique_id()).__name__ == told["id"]
    assert vars(Machine(has_nccl=False).cupy().cuda.nccl) == {"available": False}, "the word alone, as of the real one"
    for name, function in vars(machine.cupy().cuda.cublas).items():
        expect_the_same(name, signature(function), documented(real_names.cublas()[name]))


def test_the_made_up_nvml_takes_what_the_real_one_takes() -> None:
    """So many arguments, whatever they are called; the rest may be left out."""
    import pynvml

    asked = [name for name in dir(FakeNvml) if name.startswith("nvml")]
    assert len(asked) > 20
    for name in asked:
        mine = len(inspect.signature(getattr(FakeNvml, name)).parameters) - 1
        theirs = [*inspect.signature(getattr(pynvml, name)).parameters.values()]
        assert mine <= len(theirs), name
        assert all(peer.default is not peer.empty for peer in theirs[mine:]), name
