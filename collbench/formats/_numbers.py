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


def code(version: str) -> int:
    """NCCL's version code from a version as people write it; 0 if it is none."""
    parts = [int(each) for each in version.split(".")[:3] if each.isascii() and each.isdigit() and len(each) < 5]
    if len(parts) < 3:
        return 0
    major, minor, patch = parts
    return major * (1000 if (major, minor) < (2, 9) else 10000) + minor * 100 + patch


def program(collective: Collective) -> str:
    """What nccl-tests calls the program."""
    return f"{PROGRAMS.get(collective.name, collective.name)}_perf"
