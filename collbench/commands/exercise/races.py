"""Runs kernels with every rank a stream of calls of its own, under ThreadSanitizer: see kernels/host/streams.cpp.

The package's kernels may be changed, in a copy; a user's kernel may take their place.
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
"""What can be noticed of a run, in the words of mistakes (exercise.toml)."""
START, BARRIER, PACKETS, RECEIVE = 1, 2, 3, 4
"""Where a long stall may be, as in streams.hpp."""

NARROW = "narrow"
"""In a program of its own: whole warps take part, and threads are slow here."""
_PARTS = {  # what of the harness a kernel needs, by the start of its name; the first that fits
    "ring-flags": "RING",
    "ring-pipelined": "PIPELINED",
    "ring-ll": "RING_LL",
    "one-shot-ll": "ONE_SHOT_LL",
    "nvls": "MULTIMEM",
    NARROW: "NARROW",
    "": "DIRECT",
}
_OTHERS = "OTHERS"  # a ring's kernels besides the all-reduce
_LONGEST = 300  # seconds of a run, which gives up much sooner by itself
_FLAGS = ("-std=c++20", "-O1", "-g1", "-pthread", "-DHOST_GRID", "-Wno-unknown-pragmas")
_DETECTOR = ("-fsanitize=thread",)
_RANKS, _KERNELS, _BETWEEN = "host/streams.cpp", "host/streams_kernels.cpp", "host/streams.hpp"
# All that the ranks' half knows.
_HEADERS = (_RANKS, _BETWEEN, "host/streams_why.hpp", "host/cuda.hpp", "prelude.cuh", "world.cuh")

Change = tuple[str, str, str]
"""Of a file of the kernels: an old text, which stands there once, and a new one."""

_MORE_STALLS: tuple[Change, ...] = (
    # The two halves of a pair of packets arrive at different times, as they may.
    (
        "packets.cuh",
        "__atomic_store_n(&to->word[1], second",
        "stall(PACKETS);\n  __atomic_store_n(&to->word[1], second",
    ),
    ("flags.cuh", "LONG = 1 << 16;", "LONG = 1 << 8;"),  # a wait is noted sooner
)


_SIDE = re.compile(  # of a race, in a report of ThreadSanitizer
    r"^ +(?:Previous )?(?:atomic )?(read|write) of size \d+ at (0x[0-9a-f]+) by[^\n]*\n(.*?)(?=\n\n|\Z)",
    re.MULTILINE | re.IGNORECASE | re.DOTALL,
)


class NoSanitizer(Exception):
    """Programs with ThreadSanitizer cannot be compiled, or do not run here."""


@dataclass(frozen=True)
class Run:
    """Streams of calls: the kernels in turn; the sizes of a call and its grid are drawn by the seed."""

    kernels: tuple[str, ...]
    ranks: int
    calls: int = 16
    seed: int = 1
    start: int = 0  # what every counter starts at
    counts: tuple[int, ...] = (1003, 1, 64, 37, 260, 4, 701)  # few of them fill packs, packets, pieces and chunks
    blocks: tuple[int, ...] = (1, 2)
    threads: tuple[int, ...] = (1, 2, 3)
    stall: int = 0  # where one thread of one rank stalls for long
    milliseconds: int = 20  # that it stalls at least; it goes on as long as others get on without it
    timeout: int = 10_000  # milliseconds without the end of any call until all is given up
    careful: bool = False  # only if no thread takes a step either, though it had the time on a busy machine too
    before: bool = False  # all ranks meet before each launch, and after it
    after: bool = False
    node: int = 0  # ranks of a node: others' arrays have no address; 0 for a single node
    fifo: int = 0  # bytes of a user's kernel's

    def words(self) -> list[str]:
        """Return the arguments of the harness's program."""
        fields = {name: ",".join(map(str, value)) for name, value in vars(self).items() if isinstance(value, tuple)}
        fields |= {name: str(int(value)) for name, value in vars(self).items() if not isinstance(value, tuple)}
        fields["slots"] = str(slots(self.ranks))
        return [f"{name}={value}" for name, value in fields.items()]

    def parts(self) -> tuple[str, ...]:
        """Return the parts of the harness that these kernels need."""
        parts = set()
        for name in self.kernels:
            parts.add(next(part for start, part in _PARTS.items() if name.startswith(start)))
            if name.startswith("ring-") and name not in _PARTS:
                parts.add(_OTHERS)
        return tuple(sorted(parts))


USER_KERNEL = "user-kernel"
"""The name under which a kernel that a user wrote runs."""


@dataclass(frozen=True)
class Outcome:
    """What became of a run."""

    calls: int
    wrong: int
    gave_up: bool
    races: int
    stderr: str
    found: tuple[Mapping[str, Any], ...] = ()  # of each rank its first wrong result: `Wrong` of streams_why.hpp
    waits: tuple[int, ...] = ()  # of each rank how far into its window lies what it waits for; 0: it does not
    crashed: bool = False

    @property
    def summary(self) -> str:
        """Its output in brief: the place of each race, the first wrong element of each rank."""
        return "\n".join(line for line in self.stderr.splitlines() if line.startswith(("SUMMARY", "rank")))

    @property
    def sides(self) -> list[list[tuple[str, int, str]]]:
        """Both sides of every race: `read` or `write`, the address, and where in the sources that was done."""
        races = []
        for report in self.stderr.split("=================="):
            sides = _SIDE.findall(report) if "data race" in report else []
            if sides:
                races.append([(verb.lower(), int(address, 16), stack) for verb, address, stack in sides])
        return races

    @property
    def catchers(self) -> set[str]:
        """All that noticed something; none after a run that was right."""
        noticed = {RACE: self.races, WRONG: self.wrong, GAVE_UP: self.gave_up, CRASHED: self.crashed}
        return {name for name, found in noticed.items() if found}


def outcome(binary: Path, run: Run, before: tuple[str, ...] | None = None) -> Outcome:
    """Run to the end, or until it is given up or crashes; `before` stands before the program, by default `launcher`."""
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

    # A program that crashed has printed no outcome.
    races = done.stderr.count("ThreadSanitizer: data race")
    if not done.stdout.startswith("{"):
        return Outcome(0, 0, False, races, done.stderr, crashed=True)
    return Outcome(**json.loads(done.stdout), races=races, stderr=done.stderr)


@cache
def launcher() -> tuple[str, ...]:
    """Return what to put before a program: some systems place memory where older ThreadSanitizers do not expect it.

    Asked of a program without any kernel, so that no fault of a kernel can pass for a missing sanitizer.
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
def build(parts: tuple[str, ...], changes: tuple[Change, ...] = (), options: tuple[str, ...] = ()) -> Path:
    """Return the program with those kernels of the package, changed; compiled once per text, options, compiler."""
    defines = (*(f"-DWITH_{part}" for part in parts), *options)
    return _program(changed((*_MORE_STALLS, *changes)), (*defines, *_DETECTOR))


def build_user_kernel(file: Path, entry: str, record: KernelRecord, detector: bool = True) -> Path:
    """Return the program with a user's kernel; ValueError with the compiler's words if that is no C++."""
    arguments = "".join(f", call.{name}" for name in record.arguments)
    names = {"USER_KERNEL": f'"{file.name}"', "USER_ENTRY": entry, "USER_ARGUMENTS": arguments}
    names |= {"USER_COLLECTIVE": record.collectives[0].upper(), "USER_IN_PLACE": str(int(record.in_place))}
    options = tuple(f"-D{name}={value}" for name, value in names.items())
    texts = {**changed(_MORE_STALLS), file.name: file.read_text(encoding="utf-8")}
    return _program(texts, (*options, *(_DETECTOR if detector else ())))


def _program(texts: Mapping[str, str], options: tuple[str, ...]) -> Path:
    """Compile the two halves apart, so that a change of a kernel costs no more than the kernel."""
    detector = tuple(option for option in options if option in _DETECTOR)
    ranks = _compiled(_RANKS, {name: texts[name] for name in _HEADERS}, ("-c", *detector))
    kernels = {name: text for name, text in texts.items() if name != _RANKS}
    return _compiled(_KERNELS, kernels, options, ranks)


def _compiled(source: str, texts: Mapping[str, str], options: tuple[str, ...], other: Path | None = None) -> Path:
    command = [*compiler.compiler(), *_FLAGS, *options]

    # The name says all that the program depends on, so that an unchanged one is compiled once.
    pieces = (source, *texts.values(), *command, other.name if other else "", compiler.compiler_version())
    stem = f"streams-{hashlib.sha256(chr(0).join(pieces).encode()).hexdigest()[:16]}"
    sources = [source, *([str(other)] if other else [])]
    return cached_file(stem, ".o", PlatformError, lambda product: _compile([*command, *sources], texts, product))


def changed(changes: tuple[Change, ...]) -> dict[str, str]:
    """Return the kernels' files with these changes; ValueError if a text to change does not stand there once."""
    origin = compiler.own_folder()
    texts = {str(path.relative_to(origin)): path.read_text() for path in sorted(origin.rglob("*.*"))}
    for name, old, new in changes:
        if texts[name].count(old) != 1:
            raise ValueError(f"{name} holds {texts[name].count(old)} times what is to be changed: {old!r}")
        texts[name] = texts[name].replace(old, new)
    return texts


def _compile(command: list[str], texts: Mapping[str, str], product: Path) -> None:
    """Compile a copy of the kernels, next to the product, with static entries, of which a file may be there twice."""
    for name, text in texts.items():
        path = product.parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(re.sub(r'^extern "C" (?=__global__)', "static ", text, flags=re.MULTILINE))
    command = [*command, "-I", ".", "-o", product.name]
    done = subprocess.run(command, cwd=product.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
