"""How often verdicts are right: published curves of healthy machines, with faults put in, judged in three ways.

By the model of their system (`check --on`), against a healthy run (`check --reference`), and by the gate (`compare
--gate`).  Each curve is imported as a log of nccl-tests.  Of the package that judges only commands are used, with their
exit statuses and JSON, so that versions can be compared: `--tree FOLDER` has that of another checkout judge.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from collbench.collectives import COLLECTIVES
from collbench.topology.files import to_toml
from collbench.topology.system import System
from tools.model.systems import Published, published

CURVES, FEWEST, OF_AN_OPERATOR = 25, 8, 2  # curves; sizes of each; curves of an operator
PROGRAMS = {name.replace("_", ""): name for name in ("all_reduce", "all_gather", "reduce_scatter", "alltoall")}
NOISE, LARGE = 0.02, 64 * 2**20  # of a time; bytes above which sizes are large
PROMISED, NONE = 1 / 50, "  N/A" * 4  # of the faults in sight that may pass; of a table in place
PASSES = ("OK", "WARN", "FAST")  # with exit status 0
CLASSES = (*PASSES, "SLOW", "UNKNOWN")
CLASS_OF = {name: name for name in CLASSES} | {"FAIL": "SLOW", "WRONG": "SLOW"}
BY_STATUS = {0: "OK", 3: "SLOW"}  # else UNKNOWN, also where an error ends the command
KEYS = ("word", "status", "gate")  # of JSON that may have the word
DRIVER = """
import contextlib, io, json, sys, warnings
from collbench.cli.group import group
from collbench.errors import CollbenchError
warnings.simplefilter("ignore")
for line in sys.stdin:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try: answer = group.main(json.loads(line), standalone_mode=False) or 0, ""
        except CollbenchError as error: answer = error.exit_status, str(error)
    print(json.dumps(answer))
"""


class Fault(NamedTuple):
    """Some sizes of a curve take longer."""

    name: str
    factor: float = 1.0
    hit: Callable[[int], Iterable[int]] = range  # of so many sizes
    sight: str = "large"  # which of the two sights is about it


FAULTS = (
    Fault("none"),
    *(Fault(f"all sizes {factor}x", factor) for factor in (1.5, 2, 3)),
    Fault("upper half 2x", 2, lambda count: range(count // 2, count)),
    Fault("lower half 2x", 2, lambda count: range(count // 2), "single"),
    Fault("one of the upper half 3x", 3, lambda count: [count * 3 // 4], "single"),
    Fault("the largest 2x", 2, lambda count: [count - 1], "single"),
    Fault("three sizes 2.5x", 2.5, lambda count: [count * place // 6 for place in (1, 3, 5)], "single"),
    Fault("the middle one 10x", 10, lambda count: [count // 2], "single"),
)
WAYS = {
    "model": "check RUN --on SYSTEM",
    "reference": "check RUN --reference BASE",
    "gate": "compare BASE RUN --gate",
}


class Outcome(NamedTuple):
    """The judgement of a curve with a fault."""

    curve: str
    way: str
    fault: str
    verdict: str  # one of CLASSES
    word: str  # as the command has it; empty where its exit status alone tells
    status: int
    line: str  # of the verdict, or why there is none
    sight: Mapping[str, float | None]  # empty where it says nothing of it
    in_sight: bool  # whether the fault should be noticed by what the judgement says of its sight


def chosen() -> list[Published]:
    """By turns a collective on one node and on several: the most sizes, of an operator that has fewer than two yet."""
    every = [one for one in published() if one.quality == "healthy" and len(one.rows) >= FEWEST]
    every.sort(key=lambda one: (-len(one.rows), one.name))
    found: list[Published] = []
    while len(found) < CURVES:
        for kind in product(PROGRAMS, (False, True)):
            of_operator = Counter(one.operator for one in found)
            fits = (one for one in every if (one.collective, one.system.nodes > 1) == kind and one not in found)
            found += islice((one for one in fits if of_operator[one.operator] < OF_AN_OPERATOR), 1)
    return found[:CURVES]


def log(curve: Published, fault: Fault, noise: str) -> str:
    """The curve with a fault, and with noise by its name, as nccl-tests prints it; no release that is not stated."""
    system, collective, chance = curve.system, COLLECTIVES[curve.collective], random.Random(f"{curve.name}, {noise}")
    rows = sorted((nbytes, time * chance.lognormvariate(0, NOISE)) for nbytes, time in curve.rows if nbytes)
    hit, single = set(fault.hit(len(rows))), system.launch == "single-process"
    lines = [f"# Collective test starting: {PROGRAMS[curve.collective]}_perf"]
    lines += [f"# nThread 1 nGpus {system.gpus if single else 1} warmup iters: 5 iters: 20 agg iters: 1"]
    gpu = "AMD Instinct GPU" if system.arch.startswith("gfx") else "NVIDIA GPU"
    for rank in range(system.ranks):
        node, device = divmod(rank, system.gpus)
        process = f"Rank {rank:2d} Group  0 Pid {1000 + (node if single else rank):6d}"
        lines.append(f"#  {process} on node{node:04d} device {device:2d} [0000:{device + 1:02x}:00] {gpu}")
    if system.nccl != System.nccl:
        lines.append(f"NCCL version {system.nccl + '.0' * (system.nccl.count('.') < 2)}+cuda12.9")
    lines.append("#   size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong")
    for at, (nbytes, time) in enumerate(rows):
        seconds = time * (fault.factor if at in hit else 1)
        count, rate = nbytes // (4 * (system.ranks if collective.sharded else 1)), nbytes / seconds / 1e9
        times = f"{seconds * 1e6:10.2f} {rate:7.2f} {rate * collective.bus_factor(system.ranks):7.2f}  0"
        lines.append(f"{nbytes:12d} {count:12d}  float {'sum' if collective.reduces else 'none':>6} -1 {times}{NONE}")
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1"]) + "\n"


def carried_out(tree: Path, commands: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    """Exit status, and error if it was one, of each command of a checkout's collbench, all in one process."""
    lines, environment = "\n".join(map(json.dumps, commands)), os.environ | {"PYTHONPATH": str(tree.resolve())}
    printed = subprocess.check_output([sys.executable, "-P", "-c", DRIVER], input=lines, env=environment, text=True)
    return [tuple(json.loads(line)) for line in printed.splitlines()]


def judged(folder: Path, tree: Path, curve: Published, faults: Sequence[Fault] = FAULTS) -> Iterator[Outcome]:
    """A curve with each fault in each way; the folder is for logs, runs and what the commands write."""
    system, large = folder / "system.toml", max(nbytes for nbytes, _ in curve.rows) > LARGE
    system.write_text(to_toml(curve.system).replace("sharp = false\n", ""))  # a key that older versions do not know
    runs = {"base": FAULTS[0]} | {f"run-{FAULTS.index(fault)}": fault for fault in faults}
    for name, fault in runs.items():
        (folder / f"{name}.log").write_text(log(curve, fault, name))
    imports = [["import", str(folder / f"{name}.log"), "--out", str(folder / name)] for name in runs]
    assert not any(status for status, _ in carried_out(tree, imports)), f"{curve.name} cannot be imported"
    judgements = {(name, way): folder / f"{name}-{way}.json" for name, way in product(list(runs)[1:], WAYS)}
    commands = []
    for (name, way), file in judgements.items():
        places = {"SYSTEM": str(system), "BASE": str(folder / "base"), "RUN": str(folder / name)}
        commands.append([*(places.get(word, word) for word in WAYS[way].split()), "--json", str(file)])
    for (name, way), (status, error) in zip(judgements, carried_out(tree, commands), strict=True):
        document = {} if error else json.loads(judgements[name, way].read_text())
        word = next((word for word in map(str, map(document.get, KEYS)) if word in CLASS_OF), "")
        verdict = CLASS_OF[word] if word else BY_STATUS.get(status, "UNKNOWN")
        said = error.replace(f"{folder}/", "") or document.get("line", "")
        # The sight may be that of the whole, or of its only curve or comparison.
        parts = (document, *document.get("curves", []), *document.get("comparisons", []))
        fault, sight = runs[name], next((part["sight"] for part in parts if part.get("sight")), dict[str, float]())
        seen = 1 < fault.factor >= (sight.get(fault.sight) or math.inf) and (large or fault.sight == "single")
        yield Outcome(curve.name, way, fault.name, verdict, word, status, said, sight, seen)


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """For each way a row a fault: how often each verdict was said, and what passed although it was in sight."""
    for way, command in WAYS.items():
        mine = [one for one in outcomes if one.way == way]
        yield f"\n{way}: {command}"
        yield f"{'fault':<26}" + "".join(f"{name:>9}" for name in (*CLASSES, "in sight", "passed"))
        for fault in dict.fromkeys(one.fault for one in mine):
            yield f"{fault:<26}" + "".join(f"{count:9d}" for count in counts(one for one in mine if one.fault == fault))
        healthy = [one.verdict for one in mine if one.fault == FAULTS[0].name]
        yield f"healthy: {healthy.count('OK')} of {len(healthy)} OK"
        *_, seen, passed = counts(mine)
        yield f"in sight: {seen} faults, of which {passed} passed, and at most {PROMISED * seen:g} may"
        for line, times in Counter(one.line for one in mine if one.status not in (0, 3, 4)).items():
            yield f"refused {times} times: {line}"


def counts(outcomes: Iterable[Outcome]) -> list[int]:
    """The columns of a row."""
    every = list(outcomes)
    seen = [one.verdict in PASSES for one in every if one.in_sight]
    return [*(sum(one.verdict == name for one in every) for name in CLASSES), len(seen), sum(seen)]


def main() -> None:
    """Judge, print the table, and write what every judgement said."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome")
    parser.add_argument("--tree", type=Path, metavar="FOLDER", default=Path(), help="whose collbench judges")
    options = parser.parse_args()
    print(f"judged by {options.tree.resolve()}/collbench")
    outcomes: list[Outcome] = []
    for curve in chosen():
        ranks = f"{curve.system.nodes} x {curve.system.gpus}"
        print(f"  {curve.name:<60} {curve.operator:<14} {ranks:>8}  {len(curve.rows)} sizes  {curve.system.launch}")
        with TemporaryDirectory() as folder:
            outcomes += judged(Path(folder), options.tree, curve)
    print("\n".join(table(outcomes)))
    if options.json:
        options.json.write_text(json.dumps([one._asdict() for one in outcomes], indent=1) + "\n")


if __name__ == "__main__":
    main()
