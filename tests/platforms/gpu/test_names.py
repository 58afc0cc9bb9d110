"""Every name that GPU code uses exists: in CuPy, NCCL through it, pynvml, libcuda, and in modules imported by name.

No GPU is needed for that, only the packages; see names.py for how the code is read.
"""

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collbench import api, cli, figures, formats, implementations, platforms, schedules, styles
from collbench.platforms.gpu import nccl, probe
from tests.platforms.gpu import real_names
from tests.platforms.gpu.names import BY_NAME, OPAQUE, RESULTS, ROOTS, Reader

HERE = Path(__file__).parents[3]
PATTERNS = (
    "collbench/platforms/gpu/*.py",
    "tests/gpu/*.py",
    "collbench/topology/discover_gpu.py",
    "collbench/topology/nvml.py",
)
GPU_CODE = sorted(str(path.relative_to(HERE)) for pattern in PATTERNS for path in HERE.glob(pattern))
GPU_CODE.append("collbench/implementations/nccl.py")
EVERY_FILE = sorted(str(path.relative_to(HERE)) for path in HERE.glob("collbench/**/*.py"))


@pytest.fixture(scope="module")
def modules() -> dict[str, Any]:
    """The real things by the first words of the tables' paths."""
    pynvml = importlib.import_module("pynvml")
    real_names.cupy().cuda.cublas = real_names.cublas_module()  # which CuPy imports where the library is
    real = {"cupy": real_names.cupy(), "nccl": real_names.nccl_module(), "libcuda": real_names.driver_module()}
    return real | {"pynvml": pynvml, "gpu_nccl": nccl, "properties": dict, "bytes": bytes}


@pytest.mark.parametrize("file", GPU_CODE)
def test_every_name_that_gpu_code_uses_exists(file: str, modules: dict[str, Any]) -> None:
    assert Reader(file, modules).read((HERE / file).read_text()) == []


def test_the_tables_of_what_is_read_hold_nothing_that_is_not_used(modules: dict[str, Any]) -> None:
    """A word that no code has any more would let a wrong one pass later."""
    texts = {file: (HERE / file).read_text() for file in GPU_CODE}
    followed: set[str] = set()
    for file, text in texts.items():
        reader = Reader(file, modules)
        reader.read(text)
        followed |= reader.followed
    everything = "\n".join(texts.values())
    for file, words in ROOTS.items():
        for word in words:
            last = re.split(r"\W+", word.replace("()", "").replace("[]", ""))[-1]
            assert re.search(rf"\b{last}\b", texts[file] if file else everything), (file, word)
    for word in OPAQUE:
        assert re.search(rf"\b{re.split(r'[.()]', word)[0]}\b", everything), word
    paths = {path.split("()")[0].removesuffix("[]") for path in RESULTS}
    assert {path for path in paths if not any(f"{prefix}.".startswith(f"{path}.") for prefix in followed)} == set()
    assert all(f"def {name}(" in everything for name in BY_NAME if name != "getattr")


@pytest.mark.parametrize(
    ("structure", "function"),
    [
        (path.rpartition(".")[2], where.rpartition(".")[2].split("(")[0])
        for where, path in RESULTS.items()
        if where.startswith("pynvml.nvml")
    ],
)
def test_nvml_answers_with_the_structures_that_its_answers_are_taken_for(structure: str, function: str) -> None:
    """By the code of nvidia-ml-py, where one name may stand for the newest of several."""
    import pynvml

    code = inspect.getsource(getattr(pynvml, function))
    code += "".join(
        inspect.getsource(getattr(pynvml, name)) for name in re.findall(rf"return ({function}_v\d+)\(", code)
    )
    assert f"= {structure}()" in code or f"{structure} *" in code


WRONG = {  # by what is wrong: code, and what is said of it
    "a function": ("def f(self): self._runtime.memcpyAsink(1)", "cupy.cuda.runtime has no memcpyAsink"),
    "a constant": ("def f(cuda): return cuda.runtime.memcpyDefualt", "cupy.cuda.runtime has no memcpyDefualt"),
    "a module": ("def f(self): self._cuda.cupy.cuda.nvrct.getVersion()", "cupy.cuda has no nvrct"),
    "a class": ("def f(cuda): cuda.cupy.cuda.Strem()", "cupy.cuda has no Strem"),
    "a method": ("def f(queue): queue.enter().synchronise()", "cupy.cuda.Stream has no synchronise"),
    "a property": ("def f(cuda): cuda.cupy.RawModule().get_function(1).kernal", "cupy.RawKernel has no kernal"),
    "through a name": ("def f(cuda):\n  r = cuda.runtime\n  r.setDevise(0)", "cupy.cuda.runtime has no setDevise"),
    "through a tuple": ("def f(cuda):\n  r, n = cuda.runtime, 1\n  r.setDevise(0)", "cupy.cuda.runtime has no setD"),
    "in a lambda": ("def f(runtime): return lambda: runtime.sleep()", "cupy.cuda.runtime has no sleep"),
    "in a comprehension": ("def f(graph, a): [graph.lunch(s) for s in a]", "cupy.cuda.Graph has no lunch"),
    "in a default": ("def f(cuda, r=runtime.nothing): pass", "cupy.cuda.runtime has no nothing"),
    "of an error": (
        "def f(runtime):\n  try: g()\n  except runtime.CUDARuntimeError as error: error.code",
        "cupy.cuda.runtime.CUDARuntimeError has no code",
    ),
    "of what is caught": ("def f(nccl):\n  with suppress(nccl.NCCLError): g()", "nccl has no NCCLError"),
    "of arrays": ("def f(self): self._cupy.matmull(1, 2)", "cupy has no matmull"),
    "NCCL's": ("def f(self): self._cuda.nccl.groupBegin()", "nccl has no groupBegin"),
    "a communicator's": ("def f(nccl): nccl.NcclCommunicator.initAny([0])", "nccl.NcclCommunicator has no initAny"),
    "by its name": ("def f(end): end.whole('allSum')", "nccl.NcclCommunicator has no allSum"),
    "the driver's": ("def f(self): self._call('cuMemGetAddressRange', 1)", "libcuda has no cuMemGetAddressRange"),
    "by getattr": ("def f(runtime): getattr(runtime, 'nothing')", "cupy.cuda.runtime has no nothing"),
    "by an unknown name": ("def f(runtime, n): getattr(runtime, n)", "an attribute of cupy.cuda.runtime by no fixed"),
    "of a result": ("def f(runtime): runtime.memGetInfo().free", "nothing says what cupy.cuda.runtime.memGetInfo() is"),
    "of an item": ("def f(runtime): runtime.memGetInfo()[0].free", "says what cupy.cuda.runtime.memGetInfo()[] is"),
    "of one of many": (
        "def f(runtime):\n  for one in runtime.memGetInfo(): one.free",
        "nothing says what cupy.cuda.runtime.memGetInfo()[] is",
    ),
    "an argument": ("def f(gpu: Any): gpu.launch()", "nothing says what gpu is, which is Any"),
    "an attribute": ("class A:\n  gpus: dict[int, Any]", "nothing says what gpus is, which is Any"),
    "a return": ("def the_gpu() -> Any: pass", "nothing says what the_gpu() is, which is Any"),
    "behind a type": ("def f(runtime):\n  n: int = runtime.memGetInf()[0]\n  n.real", "runtime has no memGetInf"),
    "our own": ("def f(platform): platform.comm.estimates(1)", "gpu_nccl.Communicators has no estimates"),
}
WRONG_OF_NVML = {
    "a function": ("def f(nvml): nvml.nvmlDeviceGetNames()", "pynvml has no nvmlDeviceGetNames"),
    "a constant": ("def f(nvml): nvml.NVML_P2P_OK", "pynvml has no NVML_P2P_OK"),
    "what is asked": ("def f(nvml, g): ask(nvml, 'nvmlDeviceGetNumaNod', g)", "pynvml has no nvmlDeviceGetNumaNod"),
    "a field": ("def f(nvml, g): ask(nvml, 'nvmlDeviceGetMemoryInfo', g).all", "pynvml.c_nvmlMemory_t has no all"),
    "a field of many": (
        "def f(nvml, g): return [end.bus_id for end in [1] if (end := nvml.nvmlDeviceGetPciInfo(g))]",
        "pynvml.nvmlPciInfo_t has no bus_id",
    ),
    "a union's": (
        "def f(nvml, g): ask(nvml, 'nvmlDeviceGetFieldValues', g)[0].value.uVal",
        "pynvml.c_nvmlValue_t has no uVal",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_name_of_each_kind_is_found(kind: str, modules: dict[str, Any]) -> None:
    """One problem, at its line; and what cannot be followed is said, not passed over."""
    code, said = WRONG[kind]
    (problem,) = Reader("made_up.py", modules).read(code)
    assert said in problem
    assert problem.startswith(f"made_up.py:{code.count(chr(10)) + 1}:") or "\n" in code


@pytest.mark.parametrize("kind", WRONG_OF_NVML)
def test_a_wrong_name_of_nvml_is_found(kind: str, modules: dict[str, Any]) -> None:
    code, said = WRONG_OF_NVML[kind]
    (problem,) = Reader("made_up.py", modules, ROOTS["collbench/topology/discover_gpu.py"]).read(code)
    assert said in problem


def test_the_driver_is_asked_by_names_that_it_exports() -> None:
    """Also by the program that a child runs; an old name beside a newer one is another function, of 32 bits."""
    asked = set(re.findall(r"\bcu[A-Z]\w*", probe._QUESTION))
    assert len(asked) >= 4
    assert asked <= set(real_names.driver())
    assert "cuDeviceTotalMem" not in real_names.driver()


FAMILIES = {  # by file: the package whose modules are imported by name, and what each must have
    "collbench/__init__.py": (api, ()),  # functions by where they are
    "collbench/cli/_commands.py": (cli, ("command",)),
    "collbench/figures/kinds.py": (figures, ()),  # it looks whether a module has a KIND
    "collbench/formats/__init__.py": (formats, ()),  # it looks whether a module has a FORMAT
    "collbench/implementations/__init__.py": (implementations, ()),  # IMPLEMENTATION, or several of them
    "collbench/platforms/__init__.py": (platforms, ("PLATFORM",)),
    "collbench/schedules/__init__.py": (schedules, ("SCHEDULE",)),
    "collbench/styles/__init__.py": (styles, ("STYLE",)),
}


def dynamic_imports(file: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse((HERE / file).read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            yield node


@pytest.mark.parametrize("file", EVERY_FILE)
def test_modules_are_imported_by_text_only_where_the_name_is_not_known(file: str) -> None:
    """A fixed module has an `import`, which the type checker follows; a family of modules is listed above."""
    calls = list(dynamic_imports(file))
    assert len(calls) == (file in FAMILIES)
    for call in calls:
        text = ast.unparse(call.args[0])
        assert text == "module.name" or text.startswith(("f'{__name__}.", "f'{__package__}.")), "a fixed name"


@pytest.mark.parametrize("file", FAMILIES)
def test_every_module_of_a_family_has_what_is_taken_of_it(file: str) -> None:
    package, names = FAMILIES[file]
    assert all(f").{name}" in (HERE / file).read_text() for name in names), "as the table above says"
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        helps = not module.ispkg if package is platforms else module.name.rpartition(".")[2].startswith("_")
        if not helps:
            assert all(hasattr(importlib.import_module(module.name), name) for name in names), module.name
