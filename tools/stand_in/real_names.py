"""The real CuPy and cuda.h, as far as they show themselves on a machine without a GPU."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from tools import in_nvidia_wheels


def cupy() -> Any:
    """CuPy, or the test is skipped; but not where nothing may be."""
    assert "CI" not in os.environ or importlib.util.find_spec("cupy"), (
        "the extra `names` is among what `make test` installs"
    )
    return pytest.importorskip("cupy", exc_type=ImportError)


def header() -> Path:
    """cuda.h of the wheel nvidia-cuda-runtime-cu12, else of its successors, else of a toolkit on this machine."""
    found = in_nvidia_wheels("*/include/cuda.h")
    found.sort(key=lambda path: "cuda_runtime" not in path.parts)  # CUDA 12's, which the drivers of both know
    found += sorted(Path("/usr/local").glob("cuda*/include/cuda.h"))
    if not found:
        assert "CI" not in os.environ, "the wheel nvidia-cuda-runtime-cu12 is among the development requirements"
        pytest.skip("no cuda.h here: pip install nvidia-cuda-runtime-cu12")
    return found[0]
