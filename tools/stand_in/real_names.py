"""The real CuPy, NCCL, cuBLAS, pynvml and libcuda, as far as they show themselves on a machine without a GPU.

CuPy and pynvml can be imported.  CuPy's modules for NCCL and cuBLAS need those libraries: a process of its own gets one
whose functions do nothing, and tells what the module has.  libcuda is cuda.h of the wheel nvidia-cuda-runtime-cu12.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.platforms.compiler import compiler

_EXTENSIONS = "cupy_backends.cuda.libs."
_IMPORT = """
import ctypes, importlib, json, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
module = importlib.import_module(sys.argv[2])
def told(holder): return {name: str(getattr(holder, name).__doc__) for name in dir(holder) if name[:2] != "__"}
"""
_TELL_CUBLAS = "json.dump(told(module), sys.stdout)"
_TELL_NCCL = """
nccl = module
errors = [str(nccl.NcclError(status)) for status in range(7)]
json.dump({"module": told(nccl), "communicator": told(nccl.NcclCommunicator), "errors": errors,
           "id": type(nccl.get_unique_id()).__name__, "base": nccl.NcclError.__mro__[1].__name__}, sys.stdout)
"""


def cupy() -> Any:
    """CuPy, or the test is skipped; but not where nothing may be."""
    assert "CI" not in os.environ or importlib.util.find_spec("cupy"), (
        "the extra `names` is among what `make test` installs"
    )
    return pytest.importorskip("cupy", exc_type=ImportError)


@cache
def nccl() -> dict[str, Any]:
    """What CuPy's module for NCCL has: names with their docstrings, words of errors, the type of a unique id."""
    return _told("nccl", _TELL_NCCL)


@cache
def cublas() -> dict[str, str]:
    """The names of CuPy's module for cuBLAS, with their docstrings."""
    return _told("cublas", _TELL_CUBLAS)


def _told(name: str, tell: str) -> dict[str, Any]:
    """What an extension of CuPy says of itself, beside a library of which no function does anything."""
    place = Path(cupy().__file__).parents[1]
    (extension,) = place.glob(f"{_EXTENSIONS.replace('.', '/')}{name}.*so")
    content = extension.read_bytes()
    wanted = sorted(set(re.findall(rb"\0(%s[A-Z]\w+)(?=\0)" % name.encode(), content)))
    (soname,) = {found.decode() for found in re.findall(rb"\0(lib%s\.so\.\d+)(?=\0)" % name.encode(), content)}
    returning = {b"ncclGetErrorString": 'const char* {}(...) {{ return "words"; }}'}
    functions = [
        'extern "C" ' + returning.get(name, "long {}(...) {{ return 0; }}").format(name.decode()) for name in wanted
    ]
    with TemporaryDirectory() as folder:
        library, source, versions = Path(folder, soname), Path(folder, "nothing.cpp"), Path(folder, "versions")
        source.write_text("\n".join(functions))
        versions.write_text(f"{soname} {{ global: *; }};")  # cuBLAS's functions have a version each, which is its name
        linking = [f"-Wl,-soname,{soname}", *([f"-Wl,--version-script={versions}"] if name == "cublas" else [])]
        subprocess.run([*compiler(), "-shared", "-fPIC", *linking, "-o", library, source], check=True)
        command = [sys.executable, "-W", "ignore", "-c", _IMPORT + tell, library, _EXTENSIONS + name]
        told: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return told


def cublas_module() -> Any:
    """Stands for cupy.cuda.cublas: the same names."""
    return SimpleNamespace(**dict.fromkeys(cublas(), _function))


def nccl_module() -> Any:
    """Stands for cupy.cuda.nccl: the same names, and `available`."""
    told = nccl()
    communicator = type("NcclCommunicator", (), dict.fromkeys(told["communicator"], _function))
    classes = {"NcclCommunicator": communicator, "NcclError": RuntimeError}
    return SimpleNamespace(**dict.fromkeys(told["module"], _function) | classes | {"available": True})


def _function() -> None:
    """Only its name counts."""


def header() -> Path:
    """cuda.h of the wheel nvidia-cuda-runtime-cu12, else of its successors, else of a toolkit on this machine."""
    spec = importlib.util.find_spec("nvidia")
    wheels = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    found = [path for folder in wheels for path in sorted(folder.glob("*/include/cuda.h"))]
    found.sort(key=lambda path: "cuda_runtime" not in path.parts)  # CUDA 12's, which the drivers of both know
    found += sorted(Path("/usr/local").glob("cuda*/include/cuda.h"))
    if not found:
        assert "CI" not in os.environ, "the wheel nvidia-cuda-runtime-cu12 is among the development requirements"
        pytest.skip("no cuda.h here: pip install nvidia-cuda-runtime-cu12")
    return found[0]


@cache
def driver() -> dict[str, list[str]]:
    """The functions that libcuda exports, by the header of CUDA 12, with the names of their parameters."""
    text = re.sub(r"/\*.*?\*/", "", header().read_text(), flags=re.DOTALL)
    renamed = dict(re.findall(r"^#\s*define (cu[A-Z]\w*)\s+(cu[A-Z]\w*_v\d+)$", text, flags=re.MULTILINE))
    declared = {
        name: [part.split()[-1].lstrip("*") for part in inside.split(",") if part.strip() != "void"]
        for name, inside in re.findall(r"^CUresult CUDAAPI (cu\w+)\(([^;]*)\);", text, flags=re.MULTILINE)
    }
    return {renamed.get(name, name): parameters for name, parameters in declared.items()}


def driver_module() -> Any:
    """Stands for libcuda: the names that it exports."""
    return SimpleNamespace(**dict.fromkeys(driver(), _function))
