"""Every name that GPU code uses of CuPy, NCCL, pynvml and libcuda exists in the real ones, without a GPU.

They are `Any` to the type checker: a name that they lack is an AttributeError on a GPU, and nowhere else.
"""

import re

from collbench.platforms.gpu import probe
from tests.conftest import ROOT
from tools.stand_in import real_names
from tools.stand_in.used_names import Reader

PATTERNS = ("collbench/platforms/gpu/*.py", "collbench/topology/discover_gpu.py")
GPU_CODE = sorted(str(path.relative_to(ROOT)) for pattern in PATTERNS for path in ROOT.glob(pattern))
GPU_CODE.append("collbench/algorithms/nccl.py")


def test_every_name_that_gpu_code_uses_exists() -> None:
    found = {file: Reader(file, (ROOT / file).read_text()).read() for file in GPU_CODE}
    assert {file: problems for file, problems in found.items() if problems} == {}


def test_the_driver_is_asked_by_names_that_it_exports() -> None:
    """Also by the program that a child runs; an old name beside a newer one is another function, of 32 bits."""
    asked = set(re.findall(r"\bcu[A-Z]\w*", probe._QUESTION))
    assert len(asked) >= 4
    assert asked <= set(real_names.driver())
    assert "cuDeviceTotalMem" not in real_names.driver()
