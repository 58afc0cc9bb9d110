"""What a test was told: the line of nccl-tests' log that has its numbers, and the `config` of its JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collbench.formats.source import number, whole
from collbench.runfile.header import ForeignTest, Header


@dataclass(frozen=True, kw_only=True)
class Settings:
    """By nccl-tests' options; what a run file does not know is as usual."""

    first: int  # bytes of the smallest message, as asked for with -b
    last: int  # and of the largest one, with -e
    factor: float = 2.0  # -f; does not count with a step
    step: int = 0  # bytes, -i
    warmup: int = 1
    iterations: int = 0
    aggregated: int = 1
    checked: bool = True
    graph: int = 0  # launches of a graph for a sample, -G
    threads: int = 1  # of a process
    gpus: int = 1  # of a thread

    def __str__(self) -> str:
        step = f"{self.step}(bytes)" if self.step else f"{self.factor:.3g}(factor)"
        return (
            f"# nThread {self.threads} nGpus {self.gpus} minBytes {self.first} maxBytes {self.last} step: {step} "
            f"warmup iters: {self.warmup} iters: {self.iterations} agg iters: {self.aggregated} "
            f"validation: {int(self.checked)} graph: {self.graph}"
        )

    @property
    def config(self) -> dict[str, Any]:
        """By the keys of the JSON."""
        return {
            "nthreads": self.threads,
            "ngpus": self.gpus,
            "minimum_bytes": self.first,
            "maximum_bytes": self.last,
            **({"step_bytes": self.step} if self.step else {"step_factor": round(self.factor, 2)}),
            "warmup_iters": self.warmup,
            "iterations": self.iterations,
            "aggregated_iterations": self.aggregated,
            "validation": int(self.checked),
            "graph": self.graph,
        }


def settings(
    header: Header, ranks: int, sizes: Sequence[int], test: ForeignTest | None = None, **known: Any
) -> Settings:
    """Of a test of a run, and with it of what another tool said; `known` are fields of Settings.

    `sizes` are those of its rows, ascending.  Without an outside launcher, one command started all ranks.
    """
    asked, sampling = header.sweep.asked, header.sweep.sampling
    factor = sizes[1] / sizes[0] if len(sizes) > 1 and sizes[0] else 2.0
    alone = not (header.processes or header.imported.tool or any(gpu.host for gpu in header.topology.gpus))
    told = {
        "first": whole(asked.get("first")) or sizes[0],
        "last": whole(asked.get("last")) or sizes[-1],
        "factor": number(asked.get("factor")) or factor,
        "step": whole(asked.get("step")) or 0,
        "warmup": 1 if (warmup := whole(sampling.get("warmup"))) is None else warmup,
        "graph": int(header.topology.platform == "gpu" and sampling.get("graph") is True),
        "gpus": ranks if alone else 1,
    }
    names = ("threads", "gpus", "warmup", "aggregated", "graph")
    foreign = test.sweep if test else {}
    said = {name: value for name in names if (value := whole(foreign.get(name))) is not None}
    return Settings(**(told | said | known))
