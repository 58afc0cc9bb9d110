"""`make scan-report`: the accuracy of `collbench scan` on simulated clusters, as Markdown tables.

It draws 6,600 clusters of tools/scan_worlds.py, in 20 minutes on two cores.  An answer is exact if it names exactly the
slow members, and false if it names one that is not slow.  It is missed if it is OK although the scan claims to see the
fault.
"""

from concurrent.futures import ProcessPoolExecutor
from functools import partial

import click
import numpy as np

from collbench.analysis.judgement import Word
from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.commands.scan.measured import Scanner
from collbench.commands.scan.rows import MemberLevel, Members, Round, Scan
from collbench.datatypes import DATATYPES, NONE
from tools.scan_worlds import FAULTS, LIMIT, MOST, NOISES, SIZES, TABLE, Answer, Floats, World, drawn

SEEDS, SEEDS_HEALTHY, SEEDS_FAULT = 20, 300, 60  # of a row of the table; of a noise without and with a fault
HEAD = "| scans | exact | false | missed | OK, not in sight | UNKNOWN | rounds | sight |\n|" + "---|" * 9


def scanned(world: World) -> Answer:
    work = Scan(2, LIMIT - 1, SIZES)
    of_size = partial(Case, COLLECTIVES["sendrecv"], dtype=DATATYPES["float"], redop=NONE, root=0, in_place=False)
    cases = {size: of_size(size, ranks=world.members, work=work) for size in SIZES}
    names = tuple(f"node {node}" for node in range(world.members))
    leaf = MemberLevel("leaf", tuple(f"leaf {leaf}" for leaf in world.leaves))
    scanner = Scanner(Members(cases[SIZES[0]], "nccl", platform="model", names=names, levels=(leaf,)), work)
    while (plan := scanner.next()) is not None and world.rounds < MOST:
        number, seconds = world.rounds, tuple(world.times(plan.groups, plan.one_way, plan.nbytes).tolist())
        groups = tuple(map(tuple, plan.groups.tolist()))
        scanner.add(Round(cases[plan.nbytes], "nccl", "model", number, groups, seconds, max(seconds), plan.one_way))
    verdict, sight = scanner.verdict, scanner.verdict.sight
    named = frozenset(one.name for one in verdict.faulty)
    return Answer(verdict.word, named, verdict.rounds, sight.slower, sight.often, sight.links, SIZES)


def common(world: World, answer: Answer) -> set[str]:
    """Return the names of an answer in common form: a link without its direction, a leaf in place of all its nodes."""
    ends = [name.replace(" > ", " - ").split(" - ") for name in answer.named]
    found = {" - ".join(sorted(each, key=lambda end: int(end.split()[-1]))) for each in ends}
    for leaf in np.unique(world.leaves):
        members = {f"node {node}" for node in np.flatnonzero(world.leaves == leaf)}
        if f"leaf {leaf}" in world.slow() and members <= found:
            found = found - members | {f"leaf {leaf}"}
    return found


def judged(world: World, answer: Answer) -> Floats:
    truth, grey, found = world.slow(), world.grey(), common(world, answer)
    slow, ok = set(truth) - grey, answer.word is Word.OK
    exact = found - grey == slow and answer.word is (Word.SLOW if found else Word.OK)
    missed = ok and any(truth[name].inside(answer) for name in slow - found)
    false, unknown, unseen = found - set(truth) - grey, answer.word is Word.UNKNOWN, ok and not (exact or missed)
    return np.array([exact, bool(false), missed, unseen, unknown, answer.rounds, answer.slower], float)


def of_table(name: str, seed: int) -> bool:
    """Return whether the answer for a row of the table is right."""
    world, right = TABLE[name].drawn(seed), TABLE[name].right
    answer = scanned(world)
    exact, _, missed, *_ = judged(world, answer)
    return "named" in right and bool(exact) if answer.named else answer.word.value in right and not missed


def of_noise(noise: str, fault: str, seed: int) -> Floats:
    """Return the columns of the answer for a world with this noise and this fault."""
    world = drawn(noise, fault, seed)
    return judged(world, scanned(world))


def cells(outcomes: list[Floats]) -> str:
    *counts, rounds, sight = np.transpose(outcomes)
    shares = " | ".join(f"{each.sum():.0f} ({100 * each.mean():.1f} %)" for each in counts)
    return f"{len(outcomes)} | {shares} | {np.median(rounds):.0f} | {np.median(sight):.2f} |"


def table(pool: ProcessPoolExecutor, only: str) -> None:
    """Print the number of right answers for each row of the table."""
    print("| cluster | right is | scan |\n|---|---|---|")
    for name, row in TABLE.items():
        if only in name:
            right = sum(pool.map(partial(of_table, name), range(SEEDS)))
            print(f"| {name} | {row.right} | {right} of {SEEDS} |", flush=True)


def noises(pool: ProcessPoolExecutor, only: str) -> None:
    """Print the accuracy by noise and fault, and by fault."""
    print(f"\n| fault; noise {HEAD}")
    pooled: dict[str, list[Floats]] = {}
    for fault, noise in ((fault, noise) for fault in FAULTS for noise in NOISES):
        if only in (name := f"{fault}; {noise}"):
            seeds = range(SEEDS_HEALTHY if fault == "healthy" else SEEDS_FAULT)
            outcomes = list(pool.map(partial(of_noise, noise, fault), seeds, chunksize=4))
            pooled.setdefault(fault, []).extend(outcomes)
            print(f"| {name} | {cells(outcomes)}", flush=True)
    print(f"\n| fault, all noises {HEAD}")
    for fault, outcomes in pooled.items():
        print(f"| {fault} | {cells(outcomes)}", flush=True)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--only", default="", metavar="WORD", help="Only the rows with this word in their names.")
def main(only: str) -> None:
    with ProcessPoolExecutor() as pool:
        table(pool, only)
        noises(pool, only)


if __name__ == "__main__":
    main()
