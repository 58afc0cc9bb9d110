"""Options that nccl-tests alone has: what one means here, or why it means nothing; a record each.

Names, letters and usual values are those of nccl-tests' README and of `all_reduce_perf --help`.  What both have,
such as -b, -e and -f, is an option of `collbench sweep` like any other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click

from collbench.cli.options import PATH
from collbench.errors import UsageError


@dataclass(frozen=True)
class Unneeded:
    """An option that changes nothing here; unless its value is the usual one, a line on stderr says why."""

    letter: str
    name: str
    usual: int
    why: str

    def option(self) -> click.Option:
        """Return the option as a command takes it; docs/options.md lists it."""
        help_ = f"No effect: {self.why}."
        return click.Option(
            [f"-{self.letter}", f"--{self.name}"], type=int, metavar="N", default=self.usual, hidden=True, help=help_
        )


UNNEEDED = (
    Unneeded("a", "average", 3, "the slowest rank counts, as with -a 3"),
    Unneeded("C", "report_cputime", 0, "times are those of whole operations, on the device too"),
    Unneeded("D", "device_implementation", 0, "--impl names what carries an operation out"),
    Unneeded("M", "memory_report", 0, "what is free is looked at before the start, and not reported"),
    Unneeded("N", "run_cycles", 1, "a case is sampled until its median is known, once"),
    Unneeded("p", "parallel_init", 0, "communicators are made together, and that is not timed"),
    Unneeded("R", "local_register", 0, "NCCL's buffers are not registered"),
    Unneeded("S", "report_timestamps", 0, "rows have no time of day; the run file has that of its start"),
    Unneeded("u", "unalign", 0, "buffers begin where their memory does"),
    Unneeded("x", "cta_policy", 0, "NCCL's own policy is measured; NCCL_CTA_POLICY sets it"),
    Unneeded("y", "stream_null", 0, "every rank has a stream of its own"),
    Unneeded("z", "blocking", 0, "a sample ends once every rank is done, and nothing in it is waited for"),
)

AGGREGATED = "operations are called back to back until a sample lasts long enough, and never fused"
NAMES = ("nthreads", "agg_iters", "output_file", *(option.name for option in UNNEEDED))


def nccl_options() -> list[click.Parameter]:
    """Return all of these for a command; its help hides them, and docs/options.md lists them."""
    return [
        click.Option(["-t", "--nthreads"], type=click.IntRange(min=1), default=1, metavar="N", hidden=True),
        click.Option(["-m", "--agg_iters"], default="1", metavar="N|MIN:MAX", hidden=True),
        click.Option(["-J", "--output_file"], type=PATH, metavar="FILE", hidden=True),
        *(option.option() for option in UNNEEDED),
    ]


def remarks(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each of these options that was given and changes nothing."""
    for option in UNNEEDED:
        if options[option.name] != option.usual:
            yield f"-{option.letter} {options[option.name]} has no effect: {option.why}"
    if options["agg_iters"] != "1" and ":" not in options["agg_iters"]:
        yield f"-m {options['agg_iters']} has no effect: {AGGREGATED}; sizes are -m MIN:MAX, or -b and -e"
    if _is_reduction(options.get("op", "")):
        yield f"--op {options['op']} is taken as nccl-tests' --op, the reduction: -o {options['op']} of an allreduce"
    if options["check"] < 1:
        yield f"-c {options['check']} has no effect: a number that was not checked is never printed"


def _is_reduction(op: str) -> bool:
    """Whether --op names what nccl-tests calls an operation; `all` is all collectives."""
    from collbench.datatypes import REDUCTIONS  # here: --help needs none of it, and no NumPy

    return bool(op) and all(name.strip() in REDUCTIONS for name in op.split(","))


def understood(options: Mapping[str, Any], joined: tuple[int, int] | None) -> dict[str, Any]:
    """The options without these, and with what they mean: threads times GPUs are ranks, -m MIN:MAX is -b and -e."""
    meant = {name: value for name, value in options.items() if name not in NAMES} | {"check": 1}
    if _is_reduction(options.get("op", "")):
        meant |= {"op": "allreduce", "redop": options["op"]}
    threads = options["nthreads"]
    if threads > 1 and joined:
        raise UsageError(f"-t {threads}: the launcher started {joined[1]} processes, and each is a rank; leave -t out")
    if threads > 1:
        meant["ranks"] = threads * (options["ranks"] or 1)
    if ":" in options["agg_iters"]:
        first, _, last = options["agg_iters"].partition(":")
        meant["minbytes"], meant["maxbytes"] = first or meant["minbytes"], last or meant["maxbytes"]
    elif not options["agg_iters"].isdecimal():
        raise UsageError(f"-m {options['agg_iters']} is neither; give MIN:MAX in bytes, or -b MIN -e MAX")
    return meant
