"""Which names code uses of modules that the type checker knows nothing of, and whether they exist.

CuPy, NCCL through it, pynvml and libcuda are `Any` to mypy: a name that they lack is an AttributeError on a GPU, and
nowhere else.  So the code is read: `ROOTS` says what the words stand for by which such a module, or an object of it,
gets into the code, and from there every chain of attributes, calls and items is followed on the real thing.  What a
function gives back stands in `RESULTS`.  Whatever begins at a known word and cannot be followed is a problem, and so is
whatever is annotated `Any` and stands neither there nor in `OPAQUE`, the values that nobody looks into.
"""

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

ROOTS: dict[str, dict[str, str]] = {  # by file, or "" for all: name, attribute, or what a call gives
    "": {
        "cupy": "cupy",
        "_cupy": "cupy",
        "load_cupy()": "cupy",
        "runtime": "cupy.cuda.runtime",
        "_runtime": "cupy.cuda.runtime",
        "nccl": "nccl",
        "comm": "gpu_nccl.Communicators",
        "self.stream": "cupy.cuda.Stream",
        "queue.stream": "cupy.cuda.Stream",
        "_queues[].stream": "cupy.cuda.Stream",
        "stream": "cupy.cuda.Stream",
        "enter()": "cupy.cuda.Stream",
        "use()": "cupy.cuda.Stream",
        "mark()": "cupy.cuda.Event",
        "_event": "cupy.cuda.Event",
        "_event()": "cupy.cuda.Event",
        "event": "cupy.cuda.Event",
        "queue.start": "cupy.cuda.Event",
        "queue.end": "cupy.cuda.Event",
        "graph": "cupy.cuda.Graph",
        "function": "cupy.cuda.Function",
        "_function": "cupy.cuda.Function",
        "functions[]": "cupy.cuda.Function",
        "_on()": "cupy.cuda.Function",
    },
    "collbench/platforms/gpu/products.py": {"_last": "cupy.ndarray", "_next": "cupy.ndarray", "_start": "cupy.ndarray"},
    "collbench/platforms/gpu/device_clocks.py": {"look()": "cupy.cuda.Event"},
    "collbench/platforms/gpu/driver.py": {"library": "libcuda", "_library": "libcuda"},
    "collbench/platforms/gpu/nccl.py": {
        "comm": "nccl.NcclCommunicator",
        "join()": "nccl.NcclCommunicator",
        "ranks()": "",
        "start()": "",
        "_make()": "",
    },
    "collbench/platforms/gpu/simulate.py": {"function": ""},
    "collbench/topology/discover_gpu.py": {"nvml": "pynvml", "library": "pynvml", "session()": "pynvml"},
    "collbench/topology/nvml.py": {"nvml": "pynvml", "session()": "pynvml", "_load()": "pynvml"},
    "collbench/implementations/nccl.py": {"self.comm": "nccl.NcclCommunicator"},
}
OPAQUE = {  # what is annotated Any and only handed on
    *("arguments", "changes", "rest", "options", "token", "mine", "topology()", "Call"),
    *("estimate.calls", "launch.groups", "pattern_kernels()"),
    *("_refuse_old.slots", "made", "Captured", "_launch()", "handle", "first", "second"),
    *("_handles()", "ask()", "comm", "action", "_bounded()", "outcome"),
}
RESULTS = {  # what functions, their items and attributes are
    "cupy.cuda.runtime.getDeviceProperties()": "properties",
    "properties[]": "bytes",
    "properties.get()": "bytes",
    "cupy.cuda.nccl": "nccl",  # a module of its own, which load_cupy imports
    "cupy.ndarray.data": "cupy.cuda.MemoryPointer",
    "cupy.RawModule.get_function()": "cupy.RawKernel",
    "cupy.RawKernel.kernel": "cupy.cuda.Function",
    "cupy.cuda.Stream.end_capture()": "cupy.cuda.Graph",
    "pynvml.nvmlDeviceGetPciInfo()": "pynvml.nvmlPciInfo_t",
    "pynvml.nvmlDeviceGetNvLinkRemotePciInfo()": "pynvml.nvmlPciInfo_t",
    "pynvml.nvmlDeviceGetMemoryInfo()": "pynvml.c_nvmlMemory_t",
    "pynvml.nvmlDeviceGetFieldValues()[]": "pynvml.c_nvmlFieldValue_t",
    "pynvml.c_nvmlFieldValue_t.value": "pynvml.c_nvmlValue_t",
}
ON_INSTANCES = {  # what objects have and their classes do not show
    "cupy.cuda.Stream": ("ptr", "device_id"),
    "cupy.cuda.Event": ("ptr",),
    "cupy.cuda.runtime.CUDARuntimeError": ("status",),
    "pynvml.NVMLError": ("value",),
}
BY_NAME = {  # functions that take a name as text: which argument that is, and of what, or of the first argument
    "ask": (1, ""),
    "getattr": (1, ""),
    "_call": (0, "libcuda"),
    "whole": (0, "nccl.NcclCommunicator"),
}


@dataclass(frozen=True)
class Thing:
    """Something of a module that is `Any`: its path, and the object if it could be followed so far."""

    path: str
    real: Any = None
    known: bool = True


_REPORTED = Thing("", known=False)  # what comes after a problem


@dataclass
class Reader:
    """Reads one file; `modules` are the real things by the first words of the paths in the tables above."""

    file: str
    modules: Mapping[str, Any]
    roots: Mapping[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    followed: set[str] = field(default_factory=set)
    ours: set[str] = field(default_factory=set)  # modules of this project, which mypy knows
    inside: str = ""  # the function that is being read

    def read(self, text: str) -> list[str]:
        """What is wrong in that text, line by line."""
        self.roots = ROOTS[""] | ROOTS.get(self.file, {}) | self.roots
        self._block(ast.parse(text).body, {})
        return self.problems

    def _problem(self, node: ast.AST, what: str) -> Thing:
        self.problems.append(f"{self.file}:{getattr(node, 'lineno', 0)}: {what}")
        return _REPORTED

    def _path(self, path: str) -> Thing | None:
        """The thing at a path of the tables; none for the empty path: that is ours, and mypy's."""
        if not path:
            return None
        first, *rest = path.split(".")
        real = self.modules[first]
        for name in rest:
            real = getattr(real, name)
        return Thing(path, real)

    def _root(self, *words: str) -> Thing | None:
        return next((self._path(self.roots[word]) for word in words if word in self.roots), None)

    def _block(self, body: Iterable[ast.stmt], names: dict[str, Thing]) -> None:
        for statement in body:
            self._statement(statement, names)

    def _statement(self, node: ast.stmt, names: dict[str, Thing]) -> None:
        """By a method for each kind that binds names; of all others the parts are read."""
        getattr(self, f"_{type(node).__name__.lower()}", self._parts)(node, names)

    def _importfrom(self, node: ast.ImportFrom, names: dict[str, Thing]) -> None:
        if node.module and node.module.split(".")[0] in ("collbench", "tests"):
            self.ours |= {alias.asname or alias.name for alias in node.names if alias.name.islower()}

    def _functiondef(self, node: ast.FunctionDef, names: dict[str, Thing]) -> None:
        self._function(node, dict(names))

    def _classdef(self, node: ast.ClassDef, names: dict[str, Thing]) -> None:
        self._values([*node.bases, *node.decorator_list], names)
        self._block(node.body, dict(names))

    def _assign(self, node: ast.Assign, names: dict[str, Thing]) -> None:
        if "Any" in _words(node.value):  # a name for a type
            self._annotated(node, _last(node.targets[0]))
        for target in node.targets:
            self._bind(target, node.value, names)

    def _annassign(self, node: ast.AnnAssign, names: dict[str, Thing]) -> None:
        if "Any" in _words(node.annotation):
            self._annotated(node, _last(node.target))
            if node.value is not None:
                self._bind(node.target, node.value, names)
        elif node.value is not None:  # the type checker knows it by its annotation
            self._value(node.value, names)
            self._bind_to(node.target, None, names)

    def _for(self, node: ast.For, names: dict[str, Thing]) -> None:
        self._bind_to(node.target, self._item(self._value(node.iter, names)), names)
        self._block([*node.body, *node.orelse], names)

    def _with(self, node: ast.With, names: dict[str, Thing]) -> None:
        for item in node.items:
            thing = self._value(item.context_expr, names)
            if item.optional_vars:
                self._bind_to(item.optional_vars, thing, names)
        self._block(node.body, names)

    def _try(self, node: ast.Try, names: dict[str, Thing]) -> None:
        self._block(node.body, names)
        for handler in node.handlers:
            kind = self._value(handler.type, names) if handler.type else None
            self._block(handler.body, names | ({handler.name: kind} if kind and handler.name else {}))
        self._block([*node.orelse, *node.finalbody], names)

    def _parts(self, node: ast.AST, names: dict[str, Thing]) -> None:
        """Every statement and expression of what is neither bound nor binds."""
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.stmt):
                self._statement(part, names)
            elif isinstance(part, ast.expr):
                self._value(part, names)
            else:
                self._parts(part, names)

    def _function(self, node: ast.FunctionDef, names: dict[str, Thing]) -> None:
        self._values(node.decorator_list, names)
        arguments = node.args
        for argument in [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ]:
            if argument is None:
                continue
            names.pop(argument.arg, None)
            if argument.annotation and "Any" in _words(argument.annotation):
                self._annotated(node, argument.arg, f"{node.name}.{argument.arg}")
        if node.returns and "Any" in _words(node.returns):
            self._annotated(node, f"{node.name}()")
        self._values([default for default in (*arguments.defaults, *arguments.kw_defaults) if default], names)
        outside, self.inside = self.inside, node.name
        self._block(node.body, names)
        self.inside = outside

    def _annotated(self, node: ast.AST, *words: str) -> None:
        """Whatever is Any is said to be something."""
        words = (*words, *(f"{word}[]" for word in words))
        if not any(word in self.roots or word in OPAQUE for word in words):
            self._problem(node, f"nothing says what {words[0]} is, which is Any")

    def _bind(self, target: ast.expr, value: ast.expr, names: dict[str, Thing]) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for bound, part in zip(target.elts, value.elts, strict=True):
                self._bind(bound, part, names)
        else:
            self._bind_to(target, self._value(value, names), names)

    def _bind_to(self, target: ast.expr, thing: Thing | None, names: dict[str, Thing]) -> None:
        if isinstance(target, ast.Name):
            names.pop(target.id, None)
            if thing:
                names[target.id] = thing
        elif isinstance(target, ast.Tuple | ast.List):
            for elt in target.elts:
                self._bind_to(elt, self._item(thing), names)
        else:
            self._value(target, names)

    def _item(self, thing: Thing | None) -> Thing | None:
        return self._result(f"{thing.path}[]") if thing else None

    def _result(self, path: str) -> Thing | None:
        if path.startswith(("[", "(", ".")):
            return _REPORTED
        return self._path(RESULTS[path]) if path in RESULTS else Thing(path, known=False)

    def _values(self, nodes: Iterable[ast.expr], names: dict[str, Thing]) -> list[Thing]:
        return [thing for thing in [self._value(node, names) for node in nodes] if thing]

    def _value(self, node: ast.expr, names: dict[str, Thing]) -> Thing | None:
        """What an expression stands for, if it is a thing of these modules; its parts are read on the way."""
        match node:
            case ast.Name(name):
                return names.get(name) or (None if name in self.ours else self._root(name))
            case ast.Attribute(value, name):
                return self._attribute(node, self._value(value, names), name)
            case ast.Call():
                return self._call(node, names)
            case ast.Subscript(value, index):
                held = self._value(value, names)
                self._value(index, names)
                return self._item(held) if held else self._root(f"{_last(value)}[]")
            case ast.NamedExpr(target, value):
                self._bind(target, value, names)
                return self._value(target, names)
            case ast.IfExp(test, body, orelse):
                return next(iter(self._values([test, body, orelse], names)[-2:]), None)
            case ast.BoolOp(_, values):
                return next(iter(self._values(values, names)), None)
            case ast.Lambda(_, body):
                self._value(body, dict(names))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self._comprehension(node, dict(names))
            case _:
                self._parts(node, names)
        return None

    def _comprehension(self, node: Any, names: dict[str, Thing]) -> None:
        for generator in node.generators:
            self._bind_to(generator.target, self._item(self._value(generator.iter, names)), names)
            self._values(generator.ifs, names)
        self._values([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt], names)

    def _attribute(self, node: ast.Attribute, held: Thing | None, name: str) -> Thing | None:
        if held is None:
            return self._root(f"{_last(node.value)}.{name}", name)
        return self._member(node, held, name)

    def _member(self, node: ast.AST, held: Thing, name: str) -> Thing | None:
        path = f"{held.path}.{name}"
        if held is _REPORTED:
            return held
        if not held.known:
            return self._problem(node, f"nothing says what {held.path} is, of which .{name} is used")
        if path not in RESULTS and name not in (*ON_INSTANCES.get(held.path, ()), *_members(held.real)):
            return self._problem(node, f"{held.path} has no {name}")
        self.followed.add(path)
        return self._result(path) if path in RESULTS else Thing(path, getattr(held.real, name, None))

    def _call(self, node: ast.Call, names: dict[str, Thing]) -> Thing | None:
        given = [self._value(argument, names) for argument in node.args]
        self._values([keyword.value for keyword in node.keywords], names)
        called = self._value(node.func, names)
        last = _last(node.func)
        if last in BY_NAME and called is None:
            return self._by_name(node, given, *BY_NAME[last])
        if called is None:
            return self._root(f"{last}()")
        if not called.known or inspect.isclass(called.real):
            return called
        return self._result(f"{called.path}()")

    def _by_name(self, node: ast.Call, given: list[Thing | None], place: int, holder: str) -> Thing | None:
        """What has its name as text; those functions themselves look up what they are told where they are called."""
        held, argument = self._path(holder) or given[0], node.args[place]
        if held is None:
            return None
        if not isinstance(argument, ast.Constant):
            return (
                None if self.inside in BY_NAME else self._problem(node, f"an attribute of {held.path} by no fixed name")
            )
        found = self._member(node, held, str(argument.value))
        asked = found is not None and found.known and _last(node.func) != "getattr"
        return self._result(f"{found.path}()") if found and asked else found


def _words(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _last(node: ast.expr) -> str:
    """The last word of a chain: `queue` of `self._queue`, `_queues[]` of `self._queues[rank]`."""
    match node:
        case ast.Name(name) | ast.Attribute(_, name):
            return name
        case ast.Subscript(value):
            return f"{_last(value)}[]"
        case ast.Call(function):
            return f"{_last(function)}()"
    return ""


def _members(real: Any) -> set[str]:
    """Of a class written in Python, also what its methods set on `self`."""
    found = set(dir(real))
    if inspect.isclass(real) and real.__module__.startswith("collbench"):
        found |= set(_set_on_self(real))
    return found


def _set_on_self(real: type) -> Iterator[str]:
    for node in ast.walk(ast.parse(inspect.getsource(real))):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr
