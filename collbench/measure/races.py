"""Run kernels of all ranks under ThreadSanitizer (kernels/host/streams.cpp).

Each rank is a stream of calls.  A run may use changed copies of the package's kernels, or a user's kernel.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from collbench.algorithms.records import KernelRecord
from collbench.algorithms.ring_ll import slots
from collbench.errors import PlatformError
from collbench.host.cache import cached_file
from collbench.platforms import compiler

RACE, WRONG, GAVE_UP, CRASHED = "race", "wrong", "stuck", "crash"
"""Kinds of mistakes in a run, as in exercise.toml."""
START, BARRIER, PACKETS, RECEIVE = 1, 2, 3, 4
"""Places of a long stall, as in streams.hpp."""

NARROW = "narrow"
"""A separate program: whole warps take part, and threads are slow here."""
NARROW_WIRE = "bfloat16"
"""The wire of NARROW in streams_kernels.cpp."""
_PARTS = {  # part of the harness for a kernel, by the start of its name; the first that fits
    "ring-flags": "RING",
    "ring-pipelined": "PIPELINED",
    "ring-ll": "RING_LL",
    "one-shot-ll": "ONE_SHOT_LL",
    "nvls": "MULTIMEM",
    NARROW: "NARROW",
    "": "DIRECT",
}
_OTHERS = "OTHERS"  # a ring's kernels for other collectives
_LONGEST = 300  # seconds of a run, which normally gives up much earlier
_FLAGS = ("-std=c++20", "-O1", "-g1", "-pthread", "-DHOST_GRID", "-Wno-unknown-pragmas")
_DETECTOR = ("-fsanitize=thread",)
_RANKS, _KERNELS, _BETWEEN = "host/streams.cpp", "host/streams_kernels.cpp", "host/streams.hpp"
# Headers of the ranks' half.
_HEADERS = (_RANKS, _BETWEEN, "host/streams_why.hpp", "host/cuda.hpp", "prelude.cuh", "world.cuh")

Change = tuple[str, str, str]
"""A kernel file, an old text that occurs in it once, and the new text."""

_MORE_STALLS: tuple[Change, ...] = (
    # The two packets of a pair may arrive at different times.
    (
        "packets.cuh",
        "__atomic_store_n(&to->word[1], second",
        "stall(PACKETS); __atomic_store_n(&to->word[1], second",  # lines keep their numbers
    ),
    ("flags.cuh", "LONG = 1 << 16;", "LONG = 1 << 8;"),  # a wait is noted sooner
)
_COUNTS: tuple[Change, ...] = (  # of a user's kernel, in `raised`
    ("flags.cuh", "__atomic_store_n(flag, value, PUB", "count_raised(), __atomic_store_n(flag, value, PUB"),
    ("packets.cuh", "__atomic_store_n(&to->word[0], first", "count_raised(), __atomic_store_n(&to->word[0], first"),
)


_SIDE = re.compile(  # one access of a race in a report of ThreadSanitizer
    r"^ +(?:Previous )?(?:atomic )?(read|write) of size \d+ at (0x[0-9a-f]+) by[^\n]*\n(.*?)(?=\n\n|\Z)",
    re.MULTILINE | re.IGNORECASE | re.DOTALL,
)


_NAME = re.compile(r'^ *\{"([\w-]+)", [A-Z]+, RUN', re.MULTILINE)  # a kernel of the package in the harness's table


@cache
def kernels() -> frozenset[str]:
    """Return the names of the package's kernels that the harness runs; other collectives are a suffix: `-broadcast`."""
    return frozenset(_NAME.findall((compiler.own_folder() / _KERNELS).read_text()))


class NoSanitizer(Exception):
    """Programs with ThreadSanitizer do not compile or run here."""


@dataclass(frozen=True)
class Run:
    """Streams of calls of the kernels in turn; the seed draws sizes and grids."""

    kernels: tuple[str, ...]
    ranks: int
    calls: int = 16
    seed: int = 1
    start: int = 0  # first value of every counter
    counts: tuple[int, ...] = (1003, 1, 64, 37, 260, 4, 701)  # mostly no multiples of packs, packets, pieces or chunks
    blocks: tuple[int, ...] = (1, 2)
    threads: tuple[int, ...] = (1, 2, 3)
    stall: int = 0  # place of a long stall of one thread of one rank
    milliseconds: int = 20  # of the stall at least; it lasts as long as the others make progress
    timeout: int = 10_000  # milliseconds without the end of any call, after which the run gives up
    careful: bool = False  # give up only if no thread takes a step either, although it could run
    before: bool = False  # all ranks meet before each launch
    after: bool = False  # all ranks meet after each launch
    node: int = 0  # ranks of a node, beyond which arrays have no address; 0 for a single node
    fifo: int = 0  # bytes of a user's FIFO

    def words(self) -> list[str]:
        """Return the arguments of the harness's program."""
        fields = {name: ",".join(map(str, value)) for name, value in vars(self).items() if isinstance(value, tuple)}
        fields |= {name: str(int(value)) for name, value in vars(self).items() if not isinstance(value, tuple)}
        fields["slots"] = str(slots(self.ranks))
        return [f"{name}={value}" for name, value in fields.items()]

    def parts(self) -> tuple[str, ...]:
        """Return the parts of the harness for these kernels."""
        parts = set()
        for name in self.kernels:
            parts.add(next(part for start, part in _PARTS.items() if name.startswith(start)))
            if name.startswith("ring-") and name not in _PARTS:
                parts.add(_OTHERS)
        return tuple(sorted(parts))


USER_KERNEL = "user-kernel"
"""The name of a user's kernel in a run."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run."""

    calls: int
    wrong: int
    gave_up: bool
    races: int
    stderr: str
    found: tuple[Mapping[str, Any], ...] = ()  # first wrong result of each rank: `Wrong` of streams_why.hpp
    waits: tuple[int, ...] = ()  # offset in the window of each rank's awaited flag; 0: it does not wait
    ended: tuple[int, ...] = ()  # calls that each rank has ended
    raised: int = 0  # flags and pairs of packets of a user's kernel, by all ranks in all calls
    crashed: bool = False

    @property
    def summary(self) -> str:
        """The places of races, and the first wrong element of each rank."""
        return "\n".join(line for line in self.stderr.splitlines() if line.startswith(("SUMMARY", "rank")))

    @property
    def sides(self) -> list[list[tuple[str, int, str]]]:
        """Both accesses of every race: `read` or `write`, the address, and the stack."""
        races = []
        for report in self.stderr.split("=================="):
            sides = _SIDE.findall(report) if "data race" in report else []
            if sides:
                races.append([(verb.lower(), int(address, 16), stack) for verb, address, stack in sides])
        return races

    @property
    def catchers(self) -> set[str]:
        """The kinds of noticed mistakes; empty after a right run."""
        noticed = {RACE: self.races, WRONG: self.wrong, GAVE_UP: self.gave_up, CRASHED: self.crashed}
        return {name for name, count in noticed.items() if count}


def stalled(call: int, ranks: int) -> int | None:
    """Return the rank that a run with a long stall holds up in a call, counted from 0; None in most calls."""
    return call // 4 % ranks if call % 4 == 2 else None  # as `luck_of` in streams.cpp


def outcome(binary: Path, run: Run, before: tuple[str, ...] | None = None) -> Outcome:
    """Run until the end, a timeout or a crash; `before` is a prefix of the command, by default `launcher`."""
    try:
        done = subprocess.run(
            [*(launcher() if before is None else before), binary, *run.words()],
            env=os.environ | {"TSAN_OPTIONS": "exitcode=0 halt_on_error=0"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PlatformError(
            f"a run of the kernel did not end in {_LONGEST} s; try again on a quieter machine"
        ) from None

    # A crashed program prints no outcome; a kernel may print before it.
    races = done.stderr.count("ThreadSanitizer: data race")
    start = done.stdout.rfind('{"calls"')
    if start < 0:
        return Outcome(0, 0, False, races, done.stderr, crashed=True)
    # C prints numbers that are none without capitals, and a sign that JSON does not know.
    text = done.stdout[start:].replace("-nan", "nan").replace("nan", "NaN").replace("inf", "Infinity")
    return Outcome(**json.loads(text), races=races, stderr=done.stderr)


@cache
def launcher() -> tuple[str, ...]:
    """Return a prefix for commands: older ThreadSanitizers need `setarch -R` on some systems.

    An empty program is tried, so that a kernel's fault is not taken for a missing sanitizer.
    """
    with tempfile.TemporaryDirectory() as scratch:
        source, binary = Path(scratch, "nothing.cpp"), Path(scratch, "nothing")
        source.write_text("int main() { return 0; }\n")
        command = [*compiler.compiler(), *_FLAGS, *_DETECTOR, "-o", str(binary), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoSanitizer(f"{command[0]} has no ThreadSanitizer: {done.stderr.strip()}")
        for before in ((), ("setarch", "-R")):
            if shutil.which(before[0] if before else "sh"):
                done = subprocess.run([*before, binary], capture_output=True, text=True, check=False)
                if done.returncode == 0:
                    return before
    raise NoSanitizer(f"a program with ThreadSanitizer does not run: {done.stderr.strip()}")


@cache
def build(
    parts: tuple[str, ...], changes: tuple[Change, ...] = (), options: tuple[str, ...] = (), folder: Path | None = None
) -> Path:
    """Return the program for parts of the harness, with changed kernels; each is compiled once.

    Kernel files in `folder` replace the package's.  ValueError with the compiler's output if one does not compile.
    """
    defines = (*(f"-DWITH_{part}" for part in parts), *options)
    return _program(_texts(folder, changes), (*defines, *_DETECTOR))


def build_user_kernel(
    file: Path, entry: str, record: KernelRecord, detector: bool = True, folder: Path | None = None
) -> Path:
    """Return the program with a user's kernel, and `folder` as in `build`; ValueError if it does not compile."""
    arguments = "".join(f", call.{name}" for name in record.arguments)
    names = {"USER_KERNEL": f'"{file.name}"', "USER_ENTRY": entry, "USER_ARGUMENTS": arguments}
    names |= {"USER_COLLECTIVE": record.collectives[0].upper(), "USER_IN_PLACE": str(int(record.in_place))}
    options = tuple(f"-D{name}={value}" for name, value in names.items())
    texts = _texts(folder, _COUNTS) | {file.name: file.read_text(encoding="utf-8")}
    return _program(texts, (*options, *(_DETECTOR if detector else ())))


def _texts(folder: Path | None, changes: tuple[Change, ...] = ()) -> dict[str, str]:
    """Return the changed kernels with more stalls; a file of `folder` takes the place of the package's."""
    own = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.cu*")} if folder else {}
    for name, old, new in _MORE_STALLS:
        own |= {name: own[name].replace(old, new)} if name in own else {}
    return changed((*_MORE_STALLS, *changes)) | own


def _program(texts: Mapping[str, str], options: tuple[str, ...]) -> Path:
    """Compile the two halves separately, so that a changed kernel recompiles only its half."""
    detector = tuple(option for option in options if option in _DETECTOR)
    ranks = _compiled(_RANKS, {name: texts[name] for name in _HEADERS}, ("-c", *detector))
    kernels = {name: text for name, text in texts.items() if name != _RANKS}
    return _compiled(_KERNELS, kernels, options, ranks)


def _compiled(source: str, texts: Mapping[str, str], options: tuple[str, ...], other: Path | None = None) -> Path:
    command = [*compiler.compiler(), *_FLAGS, *options]

    # The name depends on all inputs, so an unchanged program is compiled once.
    pieces = (source, *texts.values(), *command, other.name if other else "", compiler.compiler_version())
    stem = f"streams-{hashlib.sha256(chr(0).join(pieces).encode()).hexdigest()[:16]}"
    sources = [source, *([str(other)] if other else [])]
    return cached_file(stem, ".o", PlatformError, lambda product: _compile([*command, *sources], texts, product))


def changed(changes: tuple[Change, ...]) -> dict[str, str]:
    """Return the kernels' files with these changes; ValueError unless each old text occurs once."""
    origin = compiler.own_folder()
    texts = {str(path.relative_to(origin)): path.read_text() for path in sorted(origin.rglob("*.*"))}
    for name, old, new in changes:
        if texts[name].count(old) != 1:
            raise ValueError(f"{name} has the text to change {texts[name].count(old)} times: {old!r}")
        texts[name] = texts[name].replace(old, new)
    return texts


def _compile(command: list[str], texts: Mapping[str, str], product: Path) -> None:
    """Compile a copy of the kernels next to the product; entries are static, since a file may be included twice."""
    for name, text in texts.items():
        path = product.parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(re.sub(r'^extern "C" (?=__global__)', "static ", text, flags=re.MULTILINE))
    command = [*command, "-I", ".", "-o", product.name]
    done = subprocess.run(command, cwd=product.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
