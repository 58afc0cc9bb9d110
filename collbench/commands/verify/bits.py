"""`collbench verify --bits`: sums of random values by several numbers of ranks, which are started more than once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from collbench.cases import Sweep
from collbench.collectives import COLLECTIVES
from collbench.commands.verify.rows import Bits
from collbench.commands.verify.sums import LAWS
from collbench.datatypes import DATATYPES
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

USUAL_RANKS = 4  # on a CPU: two have one order to add in only
USUAL_STARTS = 2


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
    ] = "100ms"
    timeout: words.Timeout = "60s"
    starts: Annotated[
        int | None,
        Opt("--starts", "With --bits: start the ranks N times.", "2, under a launcher 1", "N", least=1, most=ROUNDS),
    ] = None


def bits_session(request: BitsRequest, counts: Sequence[int]) -> Session:
    """Return the session of a request with so many ranks; where no number is given, USUAL_RANKS or all GPUs."""
    joined = launched()
    if joined and len(counts) > 1:
        raise UsageError("the launcher started the ranks, so there is one number of them; leave --ranks out")
    starts = request.starts or (1 if joined else USUAL_STARTS)

    # All numbers of ranks hold memory at the same time.
    copies = -(-sum(counts) // max(counts)) if counts else 1
    usual = replace(request, ranks=max(counts, default=None), starts=starts)
    platform, sweep = measured_sweep(usual, joined, copies)
    if not counts and not joined and find_platform(platform).process_per_rank:
        return bits_session(replace(request, on=platform), [USUAL_RANKS])
    _refuse_other_than_sums(sweep)
    sampling = replace(sweep.sampling, iters=starts)  # a round is a start
    sweep = replace(sweep, works=tuple(map(Bits, LAWS)), sampling=sampling)
    folder = request.folder or default_folder(sweep)
    if joined:
        return Session(platform, sweep, joined, folder)
    arms = []
    for count in counts or [sweep.ranks]:
        part = replace(sweep, ranks=count)
        ranks = [Supervisor(platform, part, folder=folder) for _ in range(starts)]
        arms.append(Arm(ranks, part, counted(count, "rank")))
    if len({len(list(arm.sweep.cases())) for arm in arms}) > 1:
        raise UsageError("some of these sizes are one size for some of the numbers of ranks; give a larger -b or -f")
    return Session(Interleaving(platform, arms, first=-1), replace(sweep, ranks=part.ranks), None, folder)


def _refuse_other_than_sums(sweep: Sweep) -> None:
    for collective in sweep.collectives:
        if not collective.reduces:
            choices = ", ".join(name for name, known in COLLECTIVES.items() if known.reduces)
            raise UsageError(f"--bits: {collective.name} adds nothing; choose --op from: {choices}")
    for dtype in sweep.dtypes:
        if dtype.kind != "float":
            choices = ", ".join(name for name, known in DATATYPES.items() if known.kind == "float")
            raise UsageError(f"--bits: sums of {dtype.name} are exact in any order; choose -d from: {choices}")
    if [redop.name for redop in sweep.redops] != ["sum"]:
        raise UsageError("--bits is of sums; leave --redop out")
