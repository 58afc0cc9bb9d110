"""Made-up fleets: folders as nodes leave them, and how often `collbench check --fleet` names a node wrongly.

`python -m tools.fleet make DIR` writes a folder with 2,000 nodes' checks, three of them 10 % slow from 1 MiB on;
`python -m tools.fleet errors` draws 100 fleets of each kind and prints the table of docs/fleet.md (a minute).
A node differs from others by a lognormal factor of 1 %; a sample varies by 2 %, one in fifty takes longer; a round of a
size is disturbed as often and as much as starts of published sweeps on a node are.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from collbench.analysis.judgement import Judgement, Word
from collbench.cli.verdicts import head_of
from collbench.commands.check.fleet import SLOWER, changes, groups
from collbench.commands.check.inputs import FleetCurve, FleetNode

WHERE = "8 x NVIDIA H100 80GB HBM3, NVSwitch"
CASE = {"collective": "allreduce", "dtype": "float", "redop": "sum", "root": 0, "ranks": 8, "in_place": False}
CURVE = FleetCurve(WHERE, "allreduce", "float", "sum", 0, 8, False, 0, "nccl")
LATENCY, RATE = 12e-6, 250e9  # seconds, bytes of the array per second


@dataclass(frozen=True)
class Fleet:
    """How many nodes differ by how much, and what is measured of them."""

    nodes: int = 2000
    sizes: int = 9
    slow: int = 3  # nodes
    by: float = 0.10
    first: int = 2**20  # bytes from which on they are slow
    spread: float = 0.01  # between nodes, a standard deviation of logarithms
    noise: float = 0.02  # of a sample
    long: float = 0.02  # share of the samples that take longer
    disturbed: float = 0.028  # share of the rounds of a size that do
    excess: float = 0.14  # by which they do, on average
    rounds: int = 3
    samples: int = 7

    @property
    def bytes(self) -> list[int]:
        """The sizes of messages: as many as are wanted, up to 1 GiB."""
        power = 3 if self.sizes < 10 else 1
        return [2 ** (30 - power * place) for place in reversed(range(self.sizes))]

    def draw(self, seed: int, later: int = 0) -> tuple[np.ndarray, dict[int, float]]:
        """Return samples by node, size, round and sample in seconds, and the slow nodes with their true ratios.

        With `later` other samples of the same nodes.
        """
        random = np.random.default_rng(seed)
        sizes = np.array(self.bytes)
        usual = np.broadcast_to(LATENCY + sizes / RATE, (self.nodes, self.sizes)).copy()
        factors = np.exp(random.normal(0, self.spread, self.nodes))
        usual *= factors[:, None]
        slow = sorted(int(node) for node in random.choice(self.nodes, self.slow, replace=False))
        random = np.random.default_rng([seed, later])
        usual[np.ix_(slow, sizes >= self.first)] *= 1 + self.by
        shape = (self.nodes, self.sizes, self.rounds, self.samples)
        times = usual[:, :, None, None] * np.exp(random.normal(0, self.noise, shape))
        times *= 1 + (random.random(shape[:3]) < self.disturbed)[..., None] * random.exponential(
            self.excess, (*shape[:3], 1)
        )
        times *= 1 + (random.random(shape) < self.long) * random.exponential(0.5, shape)
        return times, {node: float((1 + self.by) * factors[node] / np.median(factors)) for node in slow}


def name(node: int) -> str:
    """The name of a node: `n0417`."""
    return f"n{node:04}"


def medians(times: np.ndarray) -> np.ndarray:
    """The seconds that a check writes: the median of the rounds' medians."""
    return np.median(np.median(times, axis=3), axis=2)


def nodes(times: np.ndarray, sizes: list[int]) -> list[FleetNode]:
    """A fleet as it is read from check.json."""
    rows = [dict(zip(sizes, row, strict=True)) for row in medians(times).tolist()]
    return [FleetNode(name(place), Word.OK, curves={CURVE: row}) for place, row in enumerate(rows)]


def make(folder: Path, fleet: Fleet, seed: int = 1, runs: bool = False) -> list[str]:
    """Write the folder with a check of each node, or with its run; return the names of the slow nodes."""
    times, slow = fleet.draw(seed)
    for node, (row, figures) in enumerate(zip(times.tolist(), medians(times).tolist(), strict=True)):
        place = folder / name(node)
        place.mkdir(parents=True)
        cases = [CASE | {"nbytes": nbytes, "implementation": "nccl"} for nbytes in fleet.bytes]
        if runs:
            lines = [{"kind": "header", "format": 2, "topology": {"name": WHERE, "platform": "gpu", "ranks": 8}}]
            for number in range(fleet.rounds):
                for case, rounds in zip(cases, row, strict=True):
                    more = {"kind": "measurement", "platform": "gpu", "launches": 20, "check": "ok"}
                    lines.append(case | more | {"seconds": rounds[number]})
            lines.append({"kind": "end", "finished": "", "status": 0})
            (place / "run.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        else:
            sizes = [_size(case, seconds) for case, seconds in zip(cases, figures, strict=True)]
            (place / "check.json").write_text(json.dumps(_check(name(node), sizes, fleet.rounds), indent=2) + "\n")
    return [name(node) for node in slow]


def _size(case: dict[str, object], seconds: float) -> dict[str, object]:
    busbw = CURVE.busbw(int(str(case["nbytes"])), seconds)
    more = {"expected_seconds": seconds, "ratio": 1.0, "word": "OK", "says": "as expected", "rounds": 3}
    return case | {"seconds": seconds, "busbw": busbw} | more


def _check(node: str, sizes: list[dict[str, object]], rounds: int) -> dict[str, object]:
    words = f"{len(sizes)} of {len(sizes)} results correct and as expected"
    judgement = Judgement(f"allreduce {WHERE}", "a run", Word.OK, words)
    curve = {"implementation": "nccl", "word": "OK", "remark": "", "reasons": [], "sizes": sizes}
    facts = {"line": f"collbench: OK {judgement.what}: {words}", "no_verdict": "", "where": WHERE, "rounds": rounds}
    return (
        head_of(judgement, node) | facts | {"seconds": 30.0, "disturbed": 0, "wrong_or_failed": [], "curves": [curve]}
    )


def errors(fleet: Fleet, seeds: int, slower: float = SLOWER, nights: bool = False) -> dict[str, float]:
    """The shares of slow nodes found, of fleets with all of them and no other, and of those with a wrong name.

    And that of intervals that hold the truth.  With `nights` nodes are held against a night before, when none was slow.
    """
    found = right = wrong = holds = 0
    for seed in range(seeds):
        times, slow = fleet.draw(seed)
        now = nodes(times, fleet.bytes)
        if nights:
            again = replace(fleet, slow=0).draw(seed, later=1)[0]
            (group,) = changes(nodes(again, fleet.bytes), now, slower)
        else:
            (group,) = groups(now, slower)
        true = {name(node): 1 + fleet.by if nights else ratio for node, ratio in slow.items()}
        named = {outlier.judgement.what: outlier.judgement.ratio for outlier in group.outliers}
        found += len(true.keys() & named.keys())
        right += named.keys() == true.keys()
        wrong += bool(named.keys() - true.keys())
        holds += sum(named[node].holds(true[node]) for node in true.keys() & named.keys())
    return {
        "found": found / max(1, seeds * fleet.slow),
        "right": right / seeds,
        "wrong": wrong / seeds,
        "holds": holds / max(1, found),
    }


TRIALS = {
    "one night": [
        *(Fleet(), Fleet(sizes=17), Fleet(by=0.07), Fleet(slow=0), Fleet(nodes=200, slow=2), Fleet(nodes=50, slow=1)),
        *(Fleet(nodes=20, slow=1), Fleet(nodes=10, slow=1), Fleet(nodes=10, slow=1, by=0.2)),
        *(Fleet(nodes=5, slow=1, by=0.3), Fleet(nodes=5, slow=0)),
    ],
    "one night, rounds as rough as between nodes": [
        Fleet(disturbed=0.11, excess=0.12),
        Fleet(disturbed=0.11, excess=0.12, sizes=17),
    ],
    "against the night before": [Fleet(), Fleet(slow=0), Fleet(nodes=50, slow=1), Fleet(nodes=10, slow=1)],
}


def lines(seeds: int) -> Iterator[str]:
    """The table of docs/fleet.md."""
    heads = ("", "nodes", "sizes", "slow", "by", "slow ones found", "all of them, no other", "any other")
    yield f"| {' | '.join((*heads, 'any other, with `--slower 0.1%`', 'intervals that hold'))} |"
    yield "|---" * (len(heads) + 2) + "|"
    for what, fleets in TRIALS.items():
        for fleet in fleets:
            got, any_difference = (errors(fleet, seeds, slower, "before" in what) for slower in (SLOWER, 0.001))
            found, holds = (f"{100 * got[key]:.0f} %" if fleet.slow else "" for key in ("found", "holds"))
            shares = (f"{100 * share:.0f} %" for share in (got["right"], got["wrong"], any_difference["wrong"]))
            by = f"{100 * fleet.by:.0f} %" if fleet.slow else ""
            cells = (what, f"{fleet.nodes:,}", str(fleet.sizes), str(fleet.slow), by, found, *shares, holds)
            yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Write a fleet, or print how often it is judged wrongly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("make")
    made.add_argument("folder", type=Path)
    made.add_argument("--nodes", type=int, default=2000)
    made.add_argument("--sizes", type=int, default=9)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--runs", action="store_true", help="write run.jsonl instead of check.json")
    commands.add_parser("errors").add_argument("--seeds", type=int, default=100)
    options = parser.parse_args()
    if options.command == "make":
        slow = make(options.folder, Fleet(options.nodes, options.sizes), options.seed, options.runs)
        print(f"{options.folder}: {options.nodes} nodes; slow: {', '.join(slow)}")
    else:
        for line in lines(options.seeds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
