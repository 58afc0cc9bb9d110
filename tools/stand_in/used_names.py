"""Which names GPU code uses of CuPy, NCCL, pynvml and libcuda, and which of them the real ones lack, without a GPU.

Two things are read from the code: what is used of a word that stands for one of them (`HELD`), along every chain from
there, must be there; and every attribute at all must be a name of something.
"""

import ast
import importlib
import inspect
import re
from functools import cache
from types import ModuleType
from typing import Any

from collbench.platforms.gpu import nccl
from tools import ROOT
from tools.stand_in import real_names

HELD = {  # what words stand for: names, attributes, and what calls and items give
    "cupy": ("cupy", "_cupy", "load_cupy()"),
    "cupy.cuda.runtime": ("runtime", "_runtime"),
    "nccl": ("nccl",),
    "cupy.cuda.Stream": ("stream", "enter()", "use()"),
    "cupy.cuda.Event": ("mark()", "_event", "_event()", "event", "start_event", "rank_stream.start", "rank_stream.end"),
    "cupy.cuda.Graph": ("graph", "end_capture()"),
    "cupy.cuda.Function": ("function", "_function", "functions[]", "_on()"),
    "cupy.RawKernel": ("get_function()",),
}
HELD_IN = {  # by file
    "collbench/platforms/gpu/compute.py": {"cupy.ndarray": ("_last", "_next", "_start")},
    "collbench/platforms/gpu/cuda.py": {"libcuda": ("library", "_library")},
    "collbench/platforms/gpu/nccl.py": {"nccl.NcclCommunicator": ("comm", "join()"), "": ("function", "graph")},
    "collbench/topology/discover_gpu.py": {"pynvml": ("nvml", "library", "session()", "_load()")},
    "collbench/algorithms/nccl.py": {"gpu_nccl.Communicators": ("comm",), "nccl.NcclCommunicator": ("self.comm",)},
}
OTHERS = (
    "cupy.RawModule",
    *(f"cupy.cuda.{name}" for name in ("driver", "nvrtc", "compiler", "cublas", "MemoryPointer")),
)
BESIDES = {
    "INPUT",
    "OUTPUT",
    "Py_IncRef",
    "from_address",
    "estimatedTime",
    "ncclGroupSimulateEnd",
}  # of ours, of ctypes and structures
ON_INSTANCES = ("ptr", "device_id", "status", "value")  # what objects have and their classes do not show
BY_NAME = {"ask": "pynvml", "_call": "libcuda", "whole": "nccl.NcclCommunicator"}  # functions that take a name as text
ANSWERS = {  # what nvidia-ml-py's functions fill in
    "nvmlDeviceGetPciInfo": "nvmlPciInfo_t",
    "nvmlDeviceGetNvLinkRemotePciInfo": "nvmlPciInfo_t",
    "nvmlDeviceGetMemoryInfo": "c_nvmlMemory_t",
    "nvmlDeviceGetFieldValues": "c_nvmlFieldValue_t",
}


@cache
def modules() -> dict[str, Any]:
    """The real things by the first words of the paths above."""
    cupy = real_names.cupy()
    cupy.cuda.cublas, cupy.cuda.nccl = real_names.cublas_module(), real_names.nccl_module()  # which need libraries
    real = {"cupy": cupy, "nccl": cupy.cuda.nccl, "libcuda": real_names.driver_module(), "gpu_nccl": nccl}
    return real | {"pynvml": importlib.import_module("pynvml"), "": None}


def thing(path: str) -> Any:
    first, *rest = path.split(".")
    found = modules()[first]
    for name in rest:
        found = getattr(found, name)
    return found


def last(node: ast.expr) -> str:
    """The last word of a chain: `stream` of `self.stream`, `_streams[]` of `self._streams[rank]`."""
    match node:
        case ast.Name(name) | ast.Attribute(_, name):
            return name
        case ast.Subscript(value):
            return f"{last(value)}[]"
        case ast.Call(function):
            return f"{last(function)}()"
    return ""


class Reader:
    """Reads one file's text."""

    def __init__(self, file: str, text: str) -> None:
        tables = (HELD, HELD_IN.get(file, {}))
        self.held = {word: thing(path) for table in tables for path, words in table.items() for word in words}
        self.tree, self.problems = ast.parse(text), set[str]()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("collbench"):
                for alias in node.names:
                    self.held.pop(alias.asname or alias.name, None)

    def read(self) -> set[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute):
                self.value(node)
                if self.value(node.value) is None and node.attr not in vocabulary():
                    self.problems.add(f"{node.lineno}: nothing has {node.attr}")
            if isinstance(node, ast.Call) and last(node.func) in (*BY_NAME, "getattr"):
                holder = thing(BY_NAME.get(last(node.func), "")) or self.value(node.args[0])
                for argument in node.args:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        self.member(node, holder, argument.value)
        return self.problems

    def value(self, node: ast.expr) -> Any:
        """The real thing that an expression stands for, as far as it is known."""
        match node:
            case ast.Name(name):
                return self.held.get(name)
            case ast.Attribute(value, name):
                holder = self.value(value)
                if holder is None:
                    return self.held.get(f"{last(value)}.{name}", self.held.get(name))
                return self.member(node, holder, name)
            case ast.Call(function):
                called = self.value(function)
                given = self.held.get(f"{last(function)}()")
                return given or (called if inspect.isclass(called) else None)
        return self.held.get(last(node))

    def member(self, node: ast.expr, holder: Any, name: str) -> Any:
        if holder is None or name in (*ON_INSTANCES, *set_on_self(holder)):
            return None
        if not hasattr(holder, name):
            self.problems.add(f"{node.lineno}: {getattr(holder, '__name__', holder)} has no {name}")
        found = getattr(holder, name, None)
        return found if isinstance(found, ModuleType | type) or inspect.isclass(found) else None


def set_on_self(real: Any) -> set[str]:
    """What the methods of a class of ours set."""
    if not inspect.isclass(real) or not real.__module__.startswith("collbench"):
        return set()
    return set(re.findall(r"\bself\.(\w+)\b", inspect.getsource(real)))


@cache
def vocabulary() -> set[str]:
    """Every name that something has: what is defined in this project, what it imports, and the real things."""
    texts = [path.read_text() for path in (ROOT / "collbench").rglob("*.py")]
    found = {name for text in texts for name in re.findall(r"(?:\bdef |\bclass |\bself\.)(\w+)", text)}
    found |= {
        name for text in texts for name in re.findall(r"^ {0,4}(\w+)(?:: [^=\n]+)?(?: =.*)?$", text, re.MULTILINE)
    }
    for text in texts:
        for name in re.findall(r"^(?:import|from) ([\w.]+)", text, re.MULTILINE):
            if name.split(".")[0] not in ("mpi4py", "collbench"):
                found |= {*dir(importlib.import_module(name))}
    modules_of_python = (
        "builtins io pathlib threading subprocess re itertools collections contextlib concurrent.futures"
    )
    classes = [cls for module in modules_of_python.split() for cls in _classes(module)]
    real = [thing(path) for path in (*HELD, "pynvml", "cupy.cuda", "nccl.NcclCommunicator")]
    numpy = importlib.import_module("numpy")
    structures = [
        getattr(modules()["pynvml"], name) for name in (*ANSWERS.values(), "c_nvmlValue_t", "c_nvmlGpuFabricInfo_v2_t")
    ]
    parts = [
        *classes,
        *real,
        *structures,
        numpy.ndarray,
        numpy.dtype,
        *map(thing, OTHERS),
    ]
    return found | {name for one in parts for name in dir(one)} | {*ON_INSTANCES, *BESIDES, *real_names.driver()}


def _classes(module: str) -> list[type]:
    return [found for found in vars(importlib.import_module(module)).values() if inspect.isclass(found)]
