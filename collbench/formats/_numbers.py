"""Numbers as nccl-tests prints them: they lose digits before they break a column."""

from collbench.collectives import Collective

PROGRAMS = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}
"""Programs of nccl-tests that are not called as collbench calls the collective."""


def shrunk(value: float, width: int) -> str:
    """With as many of two decimals as fit, else with an exponent (getFloatStr of nccl-tests)."""
    for digits in (2, 1, 0):
        text = f"{value:.{digits}f}"
        if len(text) <= width:
            return text
    text = f"{value:.1e}"
    return text if len(text) <= width else f"{value:.0e}"


def program(collective: Collective) -> str:
    """What nccl-tests calls the program."""
    return f"{PROGRAMS.get(collective.name, collective.name)}_perf"
