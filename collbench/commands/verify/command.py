"""`collbench verify`: check the results of all implementations at odd sizes, the bits of sums, and memory order.

For example:
  collbench verify
  collbench verify -d all --redop all
  collbench verify --op allreduce -d all -g 4
  collbench verify --bits -g 2,3,4
  collbench verify --races --impl mine
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import click

from collbench.algorithms import choose, implementations
from collbench.cases import ROUNDS, Sweep
from collbench.cli.options import QUIET, folder_option, given, json_option, made, option, options_of, try_output
from collbench.cli.progress import LiveTable, echo_row, waiting
from collbench.cli.results_table import row
from collbench.cli.running import measure_and_answer, refuse_launcher, run_session, say_where
from collbench.collectives import COLLECTIVES
from collbench.commands.verify import memory_order
from collbench.commands.verify.measured import LAWS
from collbench.commands.verify.rows import Bits
from collbench.commands.verify.shown import LEGEND, tables
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import UsageError
from collbench.exits import BAD, GOOD
from collbench.host.launcher import launched
from collbench.measure.session import Session, exit_status
from collbench.platforms import find_platform
from collbench.present.columns import Column
from collbench.present.terminal import Table
from collbench.requests import words
from collbench.requests.declared import SIZE, TIME, Opt, takes
from collbench.requests.sessions import run_to_end, session_by_ranks
from collbench.requests.sweeps import SweepRequest, default_folder, measured_sweep
from collbench.results import Outcome, Result, Skipped, by_key, family
from collbench.runfile.store import Run
from collbench.units import format_list, parse_numbers

SIZES = (1, 28, 4012, 300_004)  # bytes: one element, few, incomplete packs and chunks, several pieces
Pairs = Mapping[tuple[str, str], Sequence[Result]]  # results by implementation and collective
_ABSENT = "-"
_WORDS = {Outcome.WRONG: "WRONG", Outcome.FAILED: "FAILED", Outcome.OK: "ok"}
"""Words of a cell, the worst first: the worst outcome of its cases counts."""
_NARROWEST = max(map(len, _WORDS.values()))  # least characters of a column
_SHOWN = 3  # failures shown of an implementation and collective, which may have thousands
USUAL_RANKS = 4  # on a CPU; two ranks can add in only one order, and both their neighbours are the same rank
USUAL_STARTS = 2


@dataclass(frozen=True)
class VerifyRequest(SweepRequest):
    """The cases to check, each once."""

    op: words.Ops = "all"
    impl: words.Impls = "all,narrow"
    on: words.Here = "auto"
    ranks: words.RanksToCheck = None
    timeout: words.Timeout = "60s"


@dataclass(frozen=True)
class BitsRequest(SweepRequest):
    """The sums of random values to compare."""

    impl: words.Impls = "all,narrow"
    minbytes: Annotated[words.Size, Opt("-b --minbytes", "With --bits: smallest message.", unit=SIZE, least=1)] = 256
    maxbytes: Annotated[words.Size, Opt("-e --maxbytes", "With --bits: largest message.", unit=SIZE)] = "1M"
    stepfactor: Annotated[float, Opt("-f --stepfactor", "With --bits: factor between sizes.")] = 64.0
    datatype: words.Datatypes = "float,bfloat16"
    budget: Annotated[
        words.Time, Opt("--budget", "With --bits: time for the calls of a row.", unit=TIME, most=words.LONGEST)
    ] = "100ms"
    timeout: words.Timeout = "60s"
    starts: Annotated[
        int | None,
        Opt("--starts", "With --bits: start the ranks N times.", "2, under a launcher 1", "N", least=1, most=ROUNDS),
    ] = None


_BITS = "minbytes maxbytes stepfactor budget starts"  # options only of --bits
_RACES = "races op impl ranks quiet"  # the only options of --races
_OPTIONS = [
    *options_of(VerifyRequest, "op impl on datatype redop timeout"),
    option(
        "-g --ranks --ngpus",
        "Number of ranks; with --bits and --races also several.  [default: every GPU; on a CPU 4; --races: 2,3,4]",
        metavar="N[,N]",
    ),
    option("--bits", "Sum random values; compare the bits and errors of the sums.", is_flag=True),
    option("--races", "Look for races in hand-written kernels, on a CPU under ThreadSanitizer.", is_flag=True),
    *options_of(BitsRequest, _BITS),
    folder_option("the run file of --bits"),
    json_option("the rows of --bits"),
    QUIET,
]


@click.command(context_settings={"show_default": True}, params=_OPTIONS)
def command(quiet: bool, bits: bool, races: bool, as_json: Path | None, **options: Any) -> int:
    """Check all implementations and collectives at odd sizes, out of place and in place.

    Run it first on a new machine.

    The default checks float sums in half a minute, or a minute if kernels must be compiled.  -d all --redop all checks
    all types and reductions: thousands of cases, in minutes.

    --bits adds random values of float and bfloat16 instead (by allreduce if --op is not given), in a minute or two.  It
    stores a run, and compares the bits of sums on all ranks, in further calls, in a CUDA graph, after a restart of the
    ranks, in place, in misaligned buffers, at other positions of the array and in arrays of other sizes.  It groups
    implementations by equal bits and measures errors against exact sums.  The exit status is 1 if the same call on the
    same values gives different bits, or if an error exceeds that of any additions in the type.

    --races runs hand-written kernels on the CPU instead, with 2, 3 and 4 ranks that come late, each in some 10 s.
    It finds accesses that nothing orders, wrong results and hangs, also in kernels of COLLBENCH_KERNELS.  The exit
    status is 1 if it finds one.
    """
    chosen, ranks = given(), options.pop("ranks")
    counts = parse_numbers(ranks) if ranks else []
    if ranks and (0 in counts or not counts or (len(counts) > 1 and not (bits or races))):
        several = "or several with --bits or --races: 2,3,4"
        raise UsageError(f"--ranks {ranks} is not possible; give a number of at least 1, {several}")
    if races:
        if other := next((chosen[name] for name in chosen if name not in _RACES.split()), ""):
            raise UsageError(f"{other} does not go with --races; leave one out")
        return _races(made(VerifyRequest, options), counts or memory_order.USUAL_RANKS, quiet)
    if bits:
        try_output(as_json, "--json FILE", options["out"])
        return _bits({name: options[name] for name in chosen if name in options}, counts, quiet, as_json)
    if alone := next((chosen[name] for name in ("as_json", "out", *_BITS.split()) if name in chosen), ""):
        raise UsageError(f"{alone} needs --bits; add --bits, or leave {alone} out")
    options["ranks"] = next(iter(counts), None)
    session = _session(made(VerifyRequest, options))
    sweep = session.sweep
    total = 0 if quiet else len(list(sweep.cases())) * len(sweep.implementations)
    interrupted = run_session(session, LiveTable(total), quiet=quiet)
    pairs = _pairs(session)
    if interrupted:
        _print_failures(pairs)
        return interrupted
    if session.leader:
        click.echo("\n".join(matrix(pairs)))
        _print_counts(pairs, sweep)
        if not quiet and not all(implementations()[family(name)].library for name, _ in pairs):
            click.echo("memory order was not tried; collbench verify --races looks for races in hand-written kernels")
        _print_failures(pairs)
    return exit_status(session.results)


def _session(request: VerifyRequest) -> Session:
    # SIZES are not a range; the request has the smallest and the largest for the check of memory.
    request = replace(request, minbytes=SIZES[0], maxbytes=SIZES[-1], iters=1, warmup=0, starts=1)
    platform, sweep = _sweep_on_usual_ranks(request)
    sampling = replace(sweep.sampling, check_only=True)
    return Session(platform, replace(sweep, sizes=SIZES, sampling=sampling, both_places=True), launched(), None)


@takes(VerifyRequest, "op impl on ranks datatype redop timeout each")
def verify(request: VerifyRequest) -> Run:
    """Check all implementations and collectives at odd sizes, as `collbench verify` without `--bits` does.

    Returns:
        The run, not stored: `outcome` of a result is ok, wrong, failed or skipped.

    >>> import collbench
    >>> run = collbench.verify("allreduce", on="cpu", ranks=2, impl="mpi")
    >>> {row["outcome"] for row in run.rows()}
    {'ok'}

    """
    return run_to_end(_session(request), request.each)


def _bits(chosen: dict[str, Any], counts: Sequence[int], quiet: bool, as_json: Path | None) -> int:
    """Add random values; print and store the comparison of bits; return the exit status."""
    session = bits_session(made(BitsRequest, chosen), counts)
    total = len(list(session.sweep.cases())) * len(session.sweep.implementations) * max(1, len(counts))

    def show() -> None:
        click.echo("\n".join(tables(session.results)))
        if not quiet:
            click.echo(f"\n{LEGEND}", err=True)
        say_where(session, plot=False)
        _print_failures(_pairs(session))

    return measure_and_answer(session, show, as_json, LiveTable(total * (not quiet)), quiet)


def _races(request: VerifyRequest, ranks: Sequence[int], quiet: bool) -> int:
    """Look for races in the kernels of a request; print what is found and return the exit status."""
    refuse_launcher("verify --races")
    if not 2 <= min(ranks) <= max(ranks) <= memory_order.MOST_RANKS:
        raise UsageError(f"--races runs 2 to {memory_order.MOST_RANKS} ranks, not {format_list(ranks)}")
    sweep = request.on_ranks(max(ranks), choose(request.implementations, ""), SIZES[-1])
    subjects, untried = memory_order.subjects(sweep.implementations, [each.name for each in sweep.collectives])
    width, status = max(map(len, subjects)), GOOD
    for number, (title, subject) in enumerate(subjects.items(), 1):
        with waiting("" if quiet else f"[{number}/{len(subjects)}] {title}"):
            evidence = memory_order.judged(subject, ranks)
        status = BAD if evidence else status
        echo_row(f"{title:<{width}}  {', '.join(evidence).upper() or 'clean'}", alarming=bool(evidence))
        click.echo("".join(f"  {line}\n" for line in chain(*evidence.values())), nl=False)
    if not quiet:
        untold = [f"not tried: {', '.join(sorted(names))}, {why}" for why, names in untried.items()]
        click.echo("\n".join([*untold, memory_order.EFFORT.format(ranks=format_list(ranks)), memory_order.UNSEEN]))
    return status


def _pairs(session: Session) -> Pairs:
    return by_key(session.results, lambda result: (result.implementation, result.case.collective.name))


def cell(results: Sequence[Result]) -> str:
    """Return `ok` or the worst outcome; `-` if nothing was checked."""
    outcomes = {result.outcome for result in results}
    return next((word for outcome, word in _WORDS.items() if outcome in outcomes), _ABSENT)


def matrix(pairs: Pairs) -> Iterator[str]:
    """Yield rows of implementations and columns of collectives, in blocks of at most 80 characters."""
    names = list(dict.fromkeys(name for name, _ in pairs))
    first = max(map(len, names), default=0)
    blocks: list[list[Column[str]]] = []
    room = 0
    for collective in dict.fromkeys(collective for _, collective in pairs):
        width = max(_NARROWEST, len(collective))
        if room < 2 + width:
            blocks.append([Column("", str, form=f"<{first}")])
            room = 80 - first
        results = {name: pairs.get((name, collective), ()) for name in names}
        blocks[-1].append(Column(collective, results.__getitem__, cell, form=f"<{width}"))
        room -= 2 + width
    for columns in blocks:
        table = Table(columns, gap="  ")
        yield table.heading()
        for name in names:
            if any(column.cell(name) != _ABSENT for column in columns[1:]):
                yield table.row(name)
        yield ""


def _print_counts(pairs: Pairs, sweep: Sweep) -> None:
    """Print the counts of outcomes, unexpectedly missing results, and the types and reductions that were checked."""
    words = {Outcome.OK: "right", Outcome.WRONG: "wrong", Outcome.FAILED: "failed", Outcome.SKIPPED: "skipped"}
    counts = Counter(result.outcome for results in pairs.values() for result in results)
    click.echo(", ".join(f"{counts[outcome]} {word}" for outcome, word in words.items()))
    for (name, collective), results in pairs.items():
        reasons = [result.reason for result in results if isinstance(result, Skipped)]
        if cell(results) == _ABSENT and reasons and collective in implementations()[family(name)].collectives:
            click.echo(f"not checked: {name} {collective}, {reasons[0]}")
    if len(sweep.dtypes) < len(DATATYPES) or len(sweep.redops) < len(REDUCTIONS):
        names = (*(dtype.name for dtype in sweep.dtypes), *(redop.name for redop in sweep.redops))
        click.echo(f"checked with {', '.join(names)}; -d all --redop all checks all types and reductions")


def _print_failures(pairs: Pairs) -> None:
    for results in pairs.values():
        bad = [result for result in results if result.outcome.bad]
        for result in bad[:_SHOWN]:
            echo_row(f"{result.case.title}: {row(result).strip()}", alarming=True)
        if len(bad) > _SHOWN:
            click.echo(f"... and {len(bad) - _SHOWN:,} more of {bad[0].implementation}")


def bits_session(request: BitsRequest, counts: Sequence[int]) -> Session:
    """Return the session of a request with each number of ranks in `counts`; by default as for other checks."""
    joined = launched()
    if joined and len(counts) > 1:
        raise UsageError("the launcher fixes the number of ranks; leave --ranks out")
    starts = request.starts or (1 if joined else USUAL_STARTS)

    # The ranks of all counts hold memory at the same time.
    copies = -(-sum(counts) // max(counts)) if counts else 1
    usual = replace(request, ranks=max(counts, default=None), starts=starts)
    platform, sweep = _sweep_on_usual_ranks(usual, copies)
    _refuse_other_than_sums(sweep)
    sweep = replace(sweep, works=tuple(map(Bits, LAWS)))
    return session_by_ranks(platform, sweep, counts or [sweep.ranks], joined, request.folder or default_folder(sweep))


def _sweep_on_usual_ranks(request: SweepRequest, copies: int = 1) -> tuple[str, Sweep]:
    """Return platform and sweep as `measured_sweep`, by default on USUAL_RANKS of a CPU, or as many as it can start."""
    platform, sweep = measured_sweep(request, launched(), copies)
    kind = find_platform(platform)
    if kind.process_per_rank and not launched() and not request.ranks:
        request = replace(request, on=platform, ranks=min(USUAL_RANKS, kind.most_ranks()[0]))
        return measured_sweep(request, copies=copies)
    return platform, sweep


def _refuse_other_than_sums(sweep: Sweep) -> None:
    for collective in sweep.collectives:
        if not collective.reduces:
            choices = ", ".join(name for name, known in COLLECTIVES.items() if known.reduces)
            raise UsageError(f"--bits: {collective.name} does not add; choose --op from: {choices}")
    for dtype in sweep.dtypes:
        if dtype.kind != "float":
            choices = ", ".join(name for name, known in DATATYPES.items() if known.kind == "float")
            raise UsageError(f"--bits: sums of {dtype.name} are exact in any order; choose -d from: {choices}")
    if [redop.name for redop in sweep.redops] != ["sum"]:
        raise UsageError("--bits is only for sums; leave --redop out")
