"""`collbench verify --bits`: sums of random values by several numbers of ranks, which are started more than once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from collbench.commands.verify.rows import Bits
from collbench.commands.verify.sums import LAWS
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.measure.interleave import ROUNDS, Arm, Interleaving
from collbench.measure.session import Session
from collbench.measure.supervisor import Supervisor
from collbench.platforms import find_platform
from collbench.requests import words
from collbench.requests.declared import SIZE, TIME, Opt
from collbench.requests.sweeps import SweepRequest, default_folder, measured_sweep
from collbench.units import counted

USUAL_RANKS = 4
"""On a CPU: two ranks have one order to add in only."""


@dataclass(frozen=True)
class BitsRequest(SweepRequest):
    """Which sums to make, and where."""

    impl: words.Impls = "all,narrow"
    minbytes: Annotated[words.Size, Opt("-b --minbytes", "With --bits: smallest message.", unit=SIZE, least=1)] = 256
    maxbytes: Annotated[words.Size, Opt("-e --maxbytes", "With --bits: largest message.", unit=SIZE)] = "1M"
    stepfactor: Annotated[float, Opt("-f --stepfactor", "With --bits: factor between sizes.")] = 16.0
    datatype: words.Datatypes = "float,bfloat16"
    budget: Annotated[
        words.Time, Opt("--budget", "With --bits: time for the calls of a row.", unit=TIME, most=words.LONGEST)
    ] = "200ms"
    timeout: words.Timeout = "60s"
    starts: Annotated[
        int | None, Opt("--starts", "With --bits: start the ranks N times.", metavar="N", least=1, most=ROUNDS)
    ] = 2


def bits_session(request: BitsRequest, counts: Sequence[int]) -> Session:
    """Return the session of a request with so many ranks; where no number is given, USUAL_RANKS or all GPUs."""
    joined = launched()
    usual = replace(request, ranks=max(counts, default=None), starts=1 if joined else request.starts)
    platform, sweep = measured_sweep(usual, joined)
    no_sums = [kind.name for kind in sweep.collectives if not kind.reduces]
    no_sums += [kind.name for kind in sweep.dtypes if kind.kind != "float"]
    no_sums += [kind.name for kind in sweep.redops if kind.name != "sum"]
    if no_sums:
        raise UsageError(f"--bits adds floats, and {no_sums[0]} does not; give --op allreduce, reducescatter or reduce")
    starts = sweep.starts
    sampling = replace(sweep.sampling, iters=starts)  # a round is a start
    sweep = replace(sweep, works=tuple(map(Bits, LAWS)), sampling=sampling)
    folder = request.folder or default_folder(sweep)
    if joined:
        return Session(platform, sweep, joined, folder)
    arms = []
    for count in counts or [USUAL_RANKS if find_platform(platform).process_per_rank else sweep.ranks]:
        part = replace(sweep, ranks=count)
        ranks = [Supervisor(platform, part, folder=folder) for _ in range(starts)]
        arms.append(Arm(ranks, part, counted(count, "rank")))
    if len({len(list(arm.sweep.cases())) for arm in arms}) > 1:
        raise UsageError("some of these sizes are one size for some of the numbers of ranks; give a larger -b or -f")
    return Session(Interleaving(platform, arms, first=-1), replace(sweep, ranks=part.ranks), None, folder)
