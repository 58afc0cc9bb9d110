"""Simulated fleets for `collbench check --fleet`: folders of nodes, and the shares of wrong answers in docs/fleet.md.

Nodes differ by a lognormal factor of 1 %.  Samples vary by 2 %, and one in fifty takes longer.  The share of disturbed
rounds, and their excess, are those of the starts of published sweeps on one node.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from collbench.analysis.judgement import Judgement, Word
from collbench.cli.verdicts import head_of
from collbench.commands.check.fleet import SLOWER, changes, groups
from collbench.commands.check.inputs import FleetCurve, FleetNode
from tools import block, table

WHERE = "8 x NVIDIA H100 80GB HBM3, NVSwitch"
CASE = {"collective": "allreduce", "dtype": "float", "redop": "sum", "root": 0, "ranks": 8, "in_place": False}
CURVE = FleetCurve(WHERE, "allreduce", "float", "sum", 0, 8, False, 0, "nccl")
SEEDS = 100  # fleets of each kind, in the table
LATENCY, RATE = 12e-6, 250e9  # seconds, bytes of the array per second


@dataclass(frozen=True)
class Fleet:
    """The nodes of a fleet, their differences, and the measurements of each."""

    nodes: int = 2000
    sizes: int = 9
    slow: int = 3  # number of slow nodes
    by: float = 0.10
    first: int = 2**20  # smallest size in bytes at which they are slow
    spread: float = 0.01  # standard deviation of logarithms between nodes
    noise: float = 0.02  # standard deviation of logarithms between samples
    long: float = 0.02  # share of samples that take longer
    disturbed: float = 0.028  # share of rounds of a size that take longer
    excess: float = 0.14  # mean excess of these rounds
    rounds: int = 3
    samples: int = 7

    @property
    def bytes(self) -> list[int]:
        """The sizes of messages, the largest of which is 1 GiB."""
        power = 3 if self.sizes < 10 else 1
        return [2 ** (30 - power * place) for place in reversed(range(self.sizes))]

    def draw(self, seed: int, later: int = 0) -> tuple[np.ndarray, dict[int, float]]:
        """Return samples in seconds by node, size, round and sample, and the slow nodes with their true ratios.

        Another `later` gives other samples of the same nodes.
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
    """Return the name of a node: `n0417`."""
    return f"n{node:04}"


def medians(times: np.ndarray) -> np.ndarray:
    """Return the seconds that a check writes: the median of the rounds' medians."""
    return np.median(np.median(times, axis=3), axis=2)


def nodes(times: np.ndarray, sizes: list[int]) -> list[FleetNode]:
    """Return a fleet as it is read from check.json."""
    rows = [dict(zip(sizes, row, strict=True)) for row in medians(times).tolist()]
    return [FleetNode(name(place), Word.OK, curves={CURVE: row}) for place, row in enumerate(rows)]


def make(folder: Path, fleet: Fleet, seed: int = 1, runs: bool = False) -> list[str]:
    """Write a folder with a check or a run of each node; return the names of the slow nodes."""
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
    """Return shares: slow nodes found, fleets with exactly these named, with a wrong name, intervals with the truth.

    With `nights`, nodes are compared with the night before, when none was slow.
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


def written() -> Iterator[tuple[Path, str]]:
    """Yield docs/fleet.md with the shares of 100 fleets of each kind."""
    heads = ("", "nodes", "sizes", "slow", "by", "slow ones found", "all of them, no other", "any other")
    rows = []
    for what, fleets in TRIALS.items():
        for fleet in fleets:
            got, any_difference = (errors(fleet, SEEDS, slower, "before" in what) for slower in (SLOWER, 0.001))
            found, holds = (f"{100 * got[key]:.0f} %" if fleet.slow else "" for key in ("found", "holds"))
            shares = (f"{100 * share:.0f} %" for share in (got["right"], got["wrong"], any_difference["wrong"]))
            by = f"{100 * fleet.by:.0f} %" if fleet.slow else ""
            rows.append([what, f"{fleet.nodes:,}", str(fleet.sizes), str(fleet.slow), by, found, *shares, holds])
    yield block(
        "docs/fleet.md", "errors", table((*heads, "any other, with `--slower 0.1%`", "intervals that hold"), rows)
    )
