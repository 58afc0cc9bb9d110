"""`all_reduce_perf` and its like: a sweep with the options, the usual values and the table of nccl-tests.

The table is the one that `collbench export --to nccl-tests` writes, row by row as results arrive: means of the samples,
out of place and in place side by side.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import click

from collbench.api.requests import measured_sweep
from collbench.cli.options import (
    HERE,
    nccl_options,
    nccl_remarks,
    shared,
    sweep_request,
    try_output,
    without_nccl_options,
)
from collbench.cli.progress import LiveTable
from collbench.cli.running import finish, run_session, write_foreign
from collbench.collectives import Collective, find_collective, of_nccl_tests
from collbench.errors import UsageError
from collbench.formats.nccl_tests_write import average, footer, opening, row, settings, signature
from collbench.host.launcher import launched
from collbench.measure.session import Session
from collbench.results import Measurement, Result, observed

LEAST_BANDWIDTH = "NCCL_TESTS_MIN_BW"
"""A variable of nccl-tests: the average bus bandwidth in GB/s below which a test has failed."""
OPTIONS = (
    *("minbytes", "maxbytes", "stepfactor", "stepbytes", "iters", "warmup", "datatype", "redop", "root"),
    *("impl", "ranks", "cudagraph", "budget", "timeout", "rendezvous", "spin", "bind", "out", "quiet"),
)
"""Options of `collbench sweep` that the programs have."""
USUAL = {
    "impl": "library",
    "minbytes": "32M",
    "maxbytes": "32M",
    "stepfactor": 0.0,
    "iters": 20,
    "ranks": 1,
    "cudagraph": False,
}
"""Defaults of nccl-tests, where a sweep has others."""


def perf(name: str) -> click.Command | None:
    """Return the command of a program's name; None if nccl-tests has no program of that name."""
    with suppress(UsageError):
        collective = find_collective(name)
        return _command(collective, name) if collective in of_nccl_tests() else None
    return None


def _command(collective: Collective, name: str) -> click.Command:
    options = shared(*OPTIONS, **USUAL)
    for option in options:
        if option.name == "redop":
            option.opts = ["-o", *option.opts, "--op"]  # what nccl-tests calls it
        if option.name == "out":
            option.opts = ["--out"]
    return click.Command(
        name,
        params=[*options, HERE, *nccl_options()],
        callback=lambda **options: _run(collective, options),
        help=f"Measure {collective.name} as nccl-tests' {name} does, and print its table.\n\n"
        "Its options keep their meaning; those without effect say so.  Nothing is "
        "stored unless --out or -J says where.",
        epilog=f"\b\nFor example:\n  {name} -b 8 -e 128M -f 2 -g 2",
        context_settings={"show_default": True},
    )


def _run(collective: Collective, options: dict[str, Any]) -> int:
    joined, least = launched(), _least_bandwidth()  # which may be refused, and then before anything is measured
    try_output(options["output_file"], "-J FILE", options["out"])
    threads, gpus = options["nthreads"], options["ranks"]
    remarks = list(nccl_remarks(options))
    if joined:
        if gpus > 1:
            raise UsageError(f"-g {gpus}: the launcher started {joined[1]} processes, and each is a rank; leave -g out")
        options["ranks"] = None  # as many as the launcher started
    if options["stepfactor"] <= 1 or options["stepbytes"]:
        # A factor of 1 in nccl-tests, without -f: steps of -i apart, by default 1 MiB.
        options |= {"stepfactor": 2.0, "stepbytes": options["stepbytes"] or "1M"}
    request = sweep_request(without_nccl_options(options, joined), op=collective.name, starts=1)
    platform, sweep = measured_sweep(request, joined)
    implementations = sweep.implementations[: 1 if options["impl"] == USUAL["impl"] else None]
    sweep = replace(sweep, implementations=implementations, both_places=True)
    session = Session(platform, sweep, joined, options["out"])
    table = _Table(session, collective, platform, threads, gpus)
    if interrupted := run_session(session, table, remarks, options["quiet"]):
        return interrupted
    passed = True
    if session.leader:
        results = list(observed(session.results))
        passed = least is None or average(results) >= least
        verdict = "" if least is None else "OK" if passed else "FAILED"
        click.echo("\n".join(footer(collective, results, verdict)))
        if options["output_file"]:
            write_foreign(session, options["output_file"])
        if session.path:
            click.echo(f"run file: {session.path}", err=True)
    return finish([session]) or int(not passed)


def _least_bandwidth() -> float | None:
    """Return the least average bus bandwidth in GB/s; None where there is no limit."""
    value = os.environ.get(LEAST_BANDWIDTH, "")
    try:
        return float(value) if value else None
    except ValueError:
        raise UsageError(f"{LEAST_BANDWIDTH}={value} is no bandwidth; give GB/s, or unset it") from None


class _Table(LiveTable):
    """The lines of the program, as results arrive; `threads` are those of a process, `gpus` those of a thread."""

    def __init__(self, session: Session, collective: Collective, platform: str, threads: int, gpus: int) -> None:
        super().__init__()
        self._session, self._collective, self._platform = session, collective, platform
        self._threads, self._gpus = threads, gpus
        self._of_size: list[Result] = []  # of the size whose row is not there yet

    def begin(self) -> None:
        """Print what stands above the rows."""
        sweep, header = self._session.sweep, self._session.header
        sizes = sorted({case.nbytes for case in sweep.cases()})
        iterations = sweep.sampling.iters or 0
        options = settings(header, sweep.ranks, sizes, iterations=iterations, nthreads=self._threads, ngpus=self._gpus)
        click.echo(signature(sweep.implementations[0], self._platform, sweep.ranks))
        click.echo("\n".join(opening(self._collective, options, header, sweep.ranks)))

    def add(self, result: Result) -> None:
        """Print the rows of a size once all its results are there."""
        self._of_size.append(result)
        places = 2 if self._collective.in_place else 1
        if len(self._of_size) < places * len(self._session.sweep.implementations):
            return
        for name in dict.fromkeys(one.implementation for one in self._of_size):
            click.echo("\n".join(_row([one for one in self._of_size if one.implementation == name])))
        self._of_size.clear()


def _row(results: Sequence[Result]) -> Iterator[str]:
    """Yield the row of one implementation and size, and a comment where it has no time or is wrong."""
    measured = {result.case.in_place: result for result in results if isinstance(result, Measurement)}
    yield row(results[0].case, (measured.get(False), measured.get(True)))
    for result in results:
        name = f"{result.implementation}{', in place' if result.case.in_place else ''}"
        if result.scheduling and result.scheduling.off_core:
            share = f"{result.scheduling.off_core:.0%} of its samples, which are in the mean"
            click.echo(f"{name}, {result.case.nbytes} B: other programs disturbed {share}", err=True)
        if reason := result.reason or result.wrong:
            yield f"# {name}: {reason}"
