"""Faults drawn over the syntax of the package, each tried by the tests: `python -m tools.mutants.of_python`.

`--seed 1 --number 50 collbench/model` draws fifty faults in this folder.  A fault changes one place of a function: a
comparison, a boundary, an operator, a number, a condition, a returned value, the order of two arguments, a call that is
left out.  The checkout is copied once, and each fault in turn is written into the copy.  The tests that import the
module must fail, or else the quick tests of its folder.  Survivors are listed with their places.

A draw depends on the text of a function and not on its place in the tree: the same seed draws the same faults of two
commits, if both have the function.  `--tree FOLDER` takes code, tests and environment from another checkout.
"""

import argparse
import ast
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "collbench"
SECONDS = 600  # limit of one run of tests
QUICK = ("-m", "not full and not machine and not deploy")

COMPARISONS = {ast.Eq: "!=", ast.NotEq: "==", ast.Lt: ">=", ast.GtE: "<", ast.Gt: "<=", ast.LtE: ">"}
COMPARISONS |= {ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is"}
BOUNDARIES = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "//", ast.Pow: "*"}
ARITHMETIC |= {ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<"}
UNTOUCHED_FUNCTIONS = ("__repr__", "__str__", "__hash__", "__format__")
# Only a clock, a reader of messages or a type checker would notice these.
UNTOUCHED_ARGUMENTS = ("strict", "timeout", "indent", "stacklevel", "daemon", "frozen", "slots", "kw_only", "maxsize")
ANY_ORDER = ("isinstance", "max", "min")
UNTOUCHED_CALLS = ("sleep", "print", "cast", "TypeVar", "warn", "Opt")


@dataclass(frozen=True)
class Fault:
    """A span of a file's bytes, and its replacement."""

    file: str
    line: int
    key: str  # the key of a draw
    operator: str
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        old, new = (re.sub(r"\s+", " ", text)[:60] for text in (self.old, self.new))
        return f"{self.file}:{self.line}: {self.operator}: `{old}` -> `{new}`"


class Reader:
    """Finds every place of a file that can be changed."""

    def __init__(self, file: str, text: bytes) -> None:
        self.file, self.text = file, text
        self.faults: list[Fault] = []
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._seen: Counter[str] = Counter()
        self._visit(ast.parse(text), Path(file).stem)

    def _visit(self, node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}"
        for operator, target, new in changes(node):
            self._add(function, operator, target, new)
        for child in touched(node):
            self._visit(child, function)

    def _add(self, function: str, operator: str, node: ast.expr | ast.stmt, new: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        old, plain = self.text[start:end].decode(), ast.unparse(node)
        key = f"{function} {operator} {plain} {new}"
        self._seen[key] += 1
        self.faults.append(Fault(self.file, node.lineno, f"{key} {self._seen[key]}", operator, start, end, old, new))


def touched(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children of a node that may have faults: no messages, types, decorators, representations."""
    left_out: list[ast.AST | None] = []
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if node.name in UNTOUCHED_FUNCTIONS:
            return
        left_out += [*node.decorator_list, node.returns]
    elif isinstance(node, ast.ClassDef):
        left_out += node.decorator_list
    elif isinstance(node, ast.AnnAssign | ast.arg):
        left_out.append(node.annotation)
    elif isinstance(node, ast.Call):
        if name_of(node.func) in UNTOUCHED_CALLS:
            return
        left_out += [word for word in node.keywords if word.arg in UNTOUCHED_ARGUMENTS]
    elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'"):
        return
    yield from (child for child in ast.iter_child_nodes(node) if child not in left_out)


def changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield the changes of a node itself: the operator, the replaced node, and its new text."""
    yield from of_operators(node)
    match node:
        case ast.Constant(bool(value)):
            yield "truth", node, str(not value)
        case ast.Constant(int() | float() as value):
            yield "off by one", node, f"({value + 1!r})"
        case ast.If(test) | ast.While(test) | ast.IfExp(test) if not isinstance(test, ast.Compare | ast.NamedExpr):
            yield "condition", test, f"(not ({ast.unparse(test)}))"
        case ast.Return(ast.expr() as value) if ast.unparse(value) != "None":
            yield "return", value, "None"
        case ast.Expr(ast.Call(function)) if name_of(function) not in UNTOUCHED_CALLS:
            yield "call left out", node, "pass"
        case ast.Call(function, [ast.expr() as first, ast.expr() as second, *rest]) if swappable(node):
            yield "arguments", node, ast.unparse(ast.Call(function, [second, first, *rest], node.keywords))


def of_operators(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield the changes of an operator: comparisons, boundaries, arithmetic, logic."""
    match node:
        case ast.Compare(left, [operator], [right]):
            for name, table in (("comparison", COMPARISONS), ("boundary", BOUNDARIES)):
                if sign := table.get(type(operator)):
                    yield name, node, f"({ast.unparse(left)}) {sign} ({ast.unparse(right)})"
        case ast.BinOp(left, operator, right) if type(operator) in ARITHMETIC and not is_text(left, right):
            yield "arithmetic", node, f"(({ast.unparse(left)}) {ARITHMETIC[type(operator)]} ({ast.unparse(right)}))"
        case ast.BoolOp(operator, values):
            word = " and " if isinstance(operator, ast.Or) else " or "
            yield "and, or", node, "(" + word.join(f"({ast.unparse(value)})" for value in values) + ")"


def swappable(call: ast.Call) -> bool:
    """Return whether the order of a call's first two arguments matters."""
    first, second = map(ast.unparse, call.args[:2])
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    return first != second and not starred and name_of(call.func) not in (*UNTOUCHED_CALLS, *ANY_ORDER)


def is_text(*nodes: ast.expr) -> bool:
    return any(
        isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        for node in nodes
    )


def name_of(function: ast.expr) -> str:
    return ast.unparse(function).rpartition(".")[2]


def drawn(tree: Path, places: Sequence[str], seed: int, number: int) -> list[Fault]:
    """Return `number` faults of the files below these places, drawn independently of the places of functions."""
    faults = []
    for path in files(tree, places):
        faults += Reader(str(path.relative_to(tree)), path.read_bytes()).faults

    def lot(fault: Fault) -> tuple[str, str]:
        return hashlib.sha256(f"{seed} {fault.key}".encode()).hexdigest(), fault.file

    return sorted(faults, key=lot)[:number]


def files(tree: Path, places: Sequence[str]) -> Iterable[Path]:
    """Return the Python files of these places, each once, in order."""
    found: set[Path] = set()
    for place in places:
        path = tree / place
        if not path.exists():
            raise SystemExit(f"error: {tree} has no {place}; name files or folders of {PACKAGE}/")
        found.update([path] if path.is_file() else path.rglob("*.py"))
    return sorted(found)


class Trials:
    """A copy of a checkout, in which faults are tried one after the other."""

    def __init__(self, tree: Path, folder: Path) -> None:
        python = tree / ".venv" / "bin" / "python"
        self._python = str(python if python.exists() else sys.executable)
        self.place = folder / "checkout"
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(tree, self.place, ignore=ignored, symlinks=True)
        # A fault changes neither size nor time of a file reliably, so compiled files are checked against the source.
        command = [self._python, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", PACKAGE, "tests"]
        subprocess.run(command, cwd=self.place, check=False)
        self._environment = os.environ | {"PYTHONPATH": str(self.place), "PYTHONDONTWRITEBYTECODE": "1"}
        self._environment["COLLBENCH_CACHE"] = str(folder / "cache")
        self._imports = {path: imported(path) for path in sorted((self.place / "tests").rglob("test_*.py"))}
        self._failing = cache(self._find_failing)

    def tests_of(self, file: str) -> list[tuple[str, ...]]:
        """Return two sets of tests: the importers of a file's module, and the nearest folder of tests."""
        module = ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
        importers = [path for path, names in self._imports.items() if module in names]
        folder = self.place / "tests" / Path(file).relative_to(PACKAGE).parent
        while not folder.is_dir():
            folder = folder.parent
        nearest = [path for path in self._imports if path.is_relative_to(folder) and path not in importers]
        if folder == self.place / "tests":
            nearest = [path for path in nearest if path.parent == folder]
        found = []
        for paths in filter(None, (importers, nearest)):
            found.append(tuple(str(path.relative_to(self.place)) for path in paths))
        return found

    def killed(self, fault: Fault) -> bool:
        """Write a fault into the copy, and return whether a test fails that passes without it."""
        file = self.place / fault.file
        text = file.read_bytes()
        selected = [(tests, self._failing(tests)) for tests in self.tests_of(fault.file)]
        file.write_bytes(text[: fault.start] + fault.new.encode() + text[fault.end :])
        try:
            return any(self._pytest("-x", *left_out, *tests)[0] for tests, left_out in selected)
        finally:
            file.write_bytes(text)

    def _find_failing(self, tests: tuple[str, ...]) -> tuple[str, ...]:
        """Return the options that leave out tests that fail without a fault."""
        status, said = self._pytest(*tests)
        failing = sorted(set(re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)))
        if status and not failing:
            raise SystemExit(f"error: these tests do not run as they are: {' '.join(tests)}\n{said[-2000:]}")
        return tuple(word for name in failing for word in ("--deselect", name))

    def _pytest(self, *words: str) -> tuple[int, str]:
        """Return exit status and output; 0 if nothing was selected, 1 after the time limit."""
        running = subprocess.Popen(
            [self._python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *QUICK, *words],
            cwd=self.place,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = running.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
            return 1, f"no end within {SECONDS} s"
        return 0 if running.returncode == 5 else running.returncode, said


def imported(path: Path) -> set[str]:
    """Return the dotted names that a file imports: modules, and names from modules."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants.of_python", description="Faults of plain Python.")
    parser.add_argument("places", nargs="*", default=[PACKAGE], metavar="FOLDER", help="files or folders to change")
    parser.add_argument("--seed", type=int, default=1, help="of the draw [default: 1]")
    parser.add_argument("--number", type=int, default=50, help="of faults [default: 50]")
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="FOLDER", help="checkout [default: this one]")
    parser.add_argument("--list", action="store_true", help="print the faults, and try none")
    chosen = parser.parse_args(arguments)
    tree = chosen.tree.resolve()
    faults = drawn(tree, chosen.places, chosen.seed, chosen.number)
    if chosen.list:
        print(*faults, sep="\n")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        trials, survivors = Trials(tree, Path(folder)), []
        for fault in faults:
            killed = trials.killed(fault)
            print(f"{'killed' if killed else 'SURVIVED':8} {fault}", flush=True)
            survivors += [] if killed else [fault]
    print(f"{len(faults) - len(survivors)} of {len(faults)} killed")
    if survivors:
        print("survivors:", *survivors, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
