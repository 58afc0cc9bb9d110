"""How often `collbench scan` is right on made-up clusters, and how often a plain opponent is: tables in Markdown.

`python -m tools.scan_report` draws 6,600 worlds of tools/scan_worlds.py for each, in 40 minutes on two cores.  An
answer is exact if all that is slow is named, and nobody else; false if somebody innocent is; missed if it is OK in spite of a
fault that lies inside the scan's own sight.
"""

import argparse
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from collbench.analysis.judgement import Word
from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.commands.scan.rows import MemberLevel, Members, Round, Scan
from collbench.commands.scan.scanner import Scanner
from collbench.datatypes import DATATYPES, NONE
from tools.plain_scan import plain_scan
from tools.scan_worlds import FAULTS, LIMIT, NOISES, SIZES, TABLE, Answer, Sight, World, drawn

MOST = 500  # rounds; a scan that wants more is ended


def scanned(world: World) -> Answer:
    """What `collbench scan` says of a world."""
    sizes: dict[str, Any] = {"sizes": SIZES} if "sizes" in {field.name for field in fields(Scan)} else {}
    work = Scan(2, LIMIT - 1, **sizes)
    dtype, ranks = DATATYPES["float"], world.members
    cases = {size: Case(COLLECTIVES["sendrecv"], size, dtype, NONE, 0, ranks, False, work) for size in SIZES}
    names = tuple(f"node {node}" for node in range(world.members))
    leaf = MemberLevel("leaf", tuple(f"leaf {leaf}" for leaf in world.leaves))
    scanner: Any = Scanner(Members(cases[SIZES[0]], "nccl", platform="model", names=names, levels=(leaf,)), work)
    for number in range(MOST):
        if (plan := scanner.next()) is None:
            break
        size = getattr(plan, "nbytes", SIZES[1])
        groups = np.asarray(plan.groups)
        seconds = tuple(world.times(groups, plan.one_way, size).tolist())
        row = tuple(map(tuple, groups.tolist()))
        scanner.add(Round(cases[size], "nccl", "model", number, row, seconds, max(seconds), plan.one_way))
    verdict, blind = scanner.verdict, Sight(LIMIT, 1.0, False, SIZES[1:])
    sight = getattr(verdict, "sight", blind)
    seen = Sight(*(getattr(sight, name, getattr(blind, name)) for name in Sight._fields))
    return Answer(verdict.word, frozenset(one.name for one in verdict.faulty), verdict.rounds, seen)


ENGINES: dict[str, Callable[[World], Answer]] = {"scan": scanned, "plain": plain_scan}


class Judged(NamedTuple):
    """An answer, held against the truth."""

    answer: Answer
    exact: bool
    false: bool
    missed: bool


def common(named: Iterable[str], slow: set[str], world: World) -> set[str]:
    """Names as the truth has them: a direction of a link as the link, and all nodes of a slow leaf as the leaf."""
    ways = [name.replace(" > ", " - ").split(" - ") for name in named]
    found = {" - ".join(sorted(ends, key=lambda end: int(end.split()[-1]))) for ends in ways}
    for leaf in np.unique(world.leaves):
        members = {f"node {node}" for node in np.flatnonzero(world.leaves == leaf)}
        if f"leaf {leaf}" in slow and members <= found:
            found = found - members | {f"leaf {leaf}"}
    return found


def judged(world: World, answer: Answer) -> Judged:
    """Return whether the answer is right."""
    truth, grey = world.truth(), world.grey()
    slow = set(truth)
    found = common(answer.named, slow, world)
    exact = found - grey == slow - grey and answer.word is (Word.SLOW if found else Word.OK)
    hidden = [truth[name] for name in slow - found - grey]
    missed = answer.word is Word.OK and any(fault.inside(answer.sight) for fault in hidden)
    return Judged(answer, exact, bool(found - slow - grey), missed)


def of_table(engine: str, name: str, seed: int) -> bool:
    """Return whether the answer to a row of the table is one of the right ones."""
    row = TABLE[name]
    world = row.drawn(seed)
    one = judged(world, ENGINES[engine](world))
    word, names = one.answer.word, one.answer.named
    named = "named" in row.answers and one.exact and bool(names)
    return named or (word.value in row.answers and not names and not one.missed)


def of_noise(engine: str, noise: str, fault: str, seed: int) -> Judged:
    """An answer to a world with this noise and this fault."""
    world = drawn(noise, fault, seed)
    return judged(world, ENGINES[engine](world))


def cells(outcomes: list[Judged]) -> str:
    """A row's columns."""
    answers = [one.answer for one in outcomes]
    ok = sum(one.answer.word is Word.OK and not (one.exact or one.missed) for one in outcomes)
    counts = [sum(one.exact for one in outcomes), sum(one.false for one in outcomes)]
    counts += [sum(one.missed for one in outcomes), ok, sum(one.word is Word.UNKNOWN for one in answers)]
    shares = " | ".join(f"{each} ({100 * each / len(outcomes):.1f} %)" for each in counts)
    sight = np.median([one.sight.slower for one in answers])
    return f"{len(outcomes)} | {shares} | {np.median([one.rounds for one in answers]):.0f} | {sight:.2f} |"


HEAD = "scans | exact | false | missed | OK, outside the sight | UNKNOWN | rounds | sight |\n|" + "---|" * 9


def table(pool: ProcessPoolExecutor, engines: list[str], only: str, seeds: int) -> None:
    """Print how many answers to each row of the table are right."""
    print(f"| cluster | right is | {' | '.join(engines)} |\n|---|---|{'---|' * len(engines)}")
    for name in (name for name in TABLE if only in name):
        right = [sum(pool.map(partial(of_table, engine, name), range(seeds))) for engine in engines]
        cells = " | ".join(f"{each} of {seeds}" for each in right)
        print(f"| {name} | {' or '.join(sorted(TABLE[name].answers))} | {cells} |", flush=True)


def noises(pool: ProcessPoolExecutor, engine: str, only: str, healthy: int, faulty: int) -> None:
    """Print how right the answers are by noise and fault, and by fault alone."""
    pooled: dict[str, list[Judged]] = {}
    print(f"\n| {engine}: noise; fault | {HEAD}")
    for fault in FAULTS:
        for noise in NOISES:
            if only in (name := f"{noise}; {fault}"):
                seeds = range(healthy if fault == "healthy" else faulty)
                outcomes = list(pool.map(partial(of_noise, engine, noise, fault), seeds, chunksize=4))
                pooled.setdefault(fault, []).extend(outcomes)
                print(f"| {name} | {cells(outcomes)}", flush=True)
    print(f"\n| {engine}: fault, all noises | {HEAD}")
    for fault, outcomes in pooled.items():
        print(f"| {fault} | {cells(outcomes)}", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="clusters of each row of the table")
    parser.add_argument("--seeds-healthy", type=int, default=300, help="healthy worlds of each noise")
    parser.add_argument("--seeds-faults", type=int, default=60, help="worlds of each noise and fault")
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose names have this word")
    parser.add_argument("--engine", choices=tuple(ENGINES), action="append")
    parser.add_argument("--jobs", type=int, help="processes")
    options = parser.parse_args()
    engines = options.engine or list(ENGINES)
    with ProcessPoolExecutor(options.jobs) as pool:
        table(pool, engines, options.only, options.seeds)
        for engine in engines:
            noises(pool, engine, options.only, options.seeds_healthy, options.seeds_faults)


if __name__ == "__main__":
    main()
