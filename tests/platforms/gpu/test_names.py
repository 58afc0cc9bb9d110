"""Every name that GPU code uses of CuPy, NCCL, pynvml and libcuda exists in the real ones, without a GPU.

They are `Any` to the type checker: a name that they lack is an AttributeError on a GPU, and nowhere else.  What runs in
the tests is held against the made-up CuPy besides, whose names test_fakes.py holds against the real ones.
"""

import inspect
import re

from collbench.platforms.gpu import probe
from tests.conftest import ROOT
from tools.stand_in import real_names
from tools.stand_in.used_names import ANSWERS, Reader, modules

PATTERNS = ("collbench/platforms/gpu/*.py", "collbench/topology/discover_gpu.py")
GPU_CODE = sorted(str(path.relative_to(ROOT)) for pattern in PATTERNS for path in ROOT.glob(pattern))
GPU_CODE.append("collbench/algorithms/nccl.py")


def test_every_name_that_gpu_code_uses_exists() -> None:
    found = {file: Reader(file, (ROOT / file).read_text()).read() for file in GPU_CODE}
    assert {file: problems for file, problems in found.items() if problems} == {}


WRONG = (  # file or "", code, what is said of it
    ("", "def f(queue): queue.enter().synchronise()", "Stream has no synchronise"),
    ("", "def f(cuda):\n  r, n = cuda.runtime, 1\n  r.setDevise(0)", "3: nothing has setDevise"),
    ("", "def f(end): end.whole('allSum')", "NcclCommunicator has no allSum"),
    ("", "def f(self): self._call('cuMemGetAddressRange', 1)", "has no cuMemGetAddressRange"),
    ("", "def f(runtime): getattr(runtime, 'nothing')", "runtime has no nothing"),
    (
        "collbench/algorithms/nccl.py",
        "def f(platform): platform.comm.estimates(1)",
        "Communicators has no estimates",
    ),
    (
        "collbench/topology/discover_gpu.py",
        "def f(nvml, g): ask(nvml, 'nvmlDeviceGetNumaNod', g)",
        "has no nvmlDeviceGetNumaNod",
    ),
    (
        "collbench/topology/discover_gpu.py",
        "def f(nvml, g): ask(nvml, 'nvmlDeviceGetMemoryInfo', g).busid",
        "nothing has busid",
    ),
)


def test_a_wrong_name_of_each_kind_is_found_in_its_line() -> None:
    for file, code, said in WRONG:
        problems = Reader(file, code).read()
        assert any(said in problem for problem in problems), (code, problems)


def test_nvml_answers_with_the_structures_that_its_answers_are_taken_for() -> None:
    """By the code of nvidia-ml-py, where one name may stand for the newest of several."""
    pynvml = modules()["pynvml"]
    for function, structure in ANSWERS.items():
        code = inspect.getsource(getattr(pynvml, function))
        for newest in re.findall(rf"return ({function}_v\d+)\(", code):
            code += inspect.getsource(getattr(pynvml, newest))
        assert f"= {structure}()" in code or f"{structure} *" in code, function


def test_the_driver_is_asked_by_names_that_it_exports() -> None:
    """Also by the program that a child runs; an old name beside a newer one is another function, of 32 bits."""
    asked = set(re.findall(r"\bcu[A-Z]\w*", probe._QUESTION))
    assert len(asked) >= 4
    assert asked <= set(real_names.driver())
    assert "cuDeviceTotalMem" not in real_names.driver()
