"""`all_reduce_perf` and its like: a sweep with the options, the usual values and the table of nccl-tests.

The table is the one that `collbench export --to nccl-tests` writes, row by row as results arrive: means of the samples,
out of place and in place side by side.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collbench.collectives import Collective, find_collective, of_nccl_tests
from collbench.errors import UsageError

if TYPE_CHECKING:
    from collbench.measure.session import Session
    from collbench.results import Result

SUFFIX = "_perf"
LEAST_BANDWIDTH = "NCCL_TESTS_MIN_BW"
"""A variable of nccl-tests: the average bus bandwidth in GB/s below which a test has failed."""
OPTIONS = (
    *("minbytes", "maxbytes", "stepfactor", "stepbytes", "iters", "warmup", "check", "datatype", "redop", "root"),
    *("impl", "ranks", "cudagraph", "budget", "timeout", "spin", "bind", "out", "quiet"),
)
"""Options of `collbench sweep` that the programs have."""
USUAL = {
    "impl": "library",
    "minbytes": "32M",
    "maxbytes": "32M",
    "stepfactor": 0.0,
    "iters": 20,
    "ranks": 1,
    "cudagraph": 0,
}
"""Defaults of nccl-tests, where a sweep has others."""


def programs() -> list[str]:
    """Return what nccl-tests calls its programs."""
    from collbench.formats.nccl_tests_write import program

    return [program(collective) for collective in of_nccl_tests()]


def perf(name: str) -> click.Command | None:
    """Return the command of a program's name; None if nccl-tests has no program of that name."""
    if not name.endswith(SUFFIX):
        return None
    with suppress(UsageError):
        collective = find_collective(name)
        return _command(collective, name) if collective in of_nccl_tests() else None
    return None


def _command(collective: Collective, name: str) -> click.Command:
    from collbench.cli._nccl_options import nccl_options
    from collbench.cli.options import HERE, shared

    options = shared(*OPTIONS, **USUAL)
    for option in options:
        if option.name == "redop":
            option.opts = [*option.opts, "--op"]  # what nccl-tests calls it
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
    from collbench.api.requests import measured_sweep
    from collbench.cli import _nccl_options
    from collbench.cli.options import sweep_request
    from collbench.cli.running import finish, run_session
    from collbench.host.launcher import launched
    from collbench.measure.session import Session

    joined, least = launched(), _least_bandwidth()  # which may be refused, and then before anything is measured
    threads, gpus = options["nthreads"], options["ranks"]
    remarks = list(_nccl_options.remarks(options))
    if joined:
        if gpus > 1:
            raise UsageError(f"-g {gpus}: the launcher started {joined[1]} processes, and each is a rank; leave -g out")
        options["ranks"] = None  # as many as the launcher started
    options |= _sizes(options)
    request = sweep_request(_nccl_options.understood(options, joined), op=collective.name, starts=1)
    platform, sweep = measured_sweep(request, joined)
    implementations = sweep.implementations[: 1 if options["impl"] == USUAL["impl"] else None]
    sweep = replace(sweep, implementations=implementations, both_places=True)
    session = Session(platform, sweep, joined, options["out"])
    table = _Table(session, collective, platform, threads, gpus)
    if interrupted := run_session(session, table, remarks, options["quiet"]):
        return interrupted
    passed = table.end(least, options["output_file"]) if session.leader else True
    return finish([session]) or int(not passed)


def _sizes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes without -f, a factor of 1 in nccl-tests: steps of -i apart, by default 1 MiB."""
    if options["stepfactor"] > 1 and not options["stepbytes"]:
        return {}
    return {"stepfactor": 2.0, "stepbytes": options["stepbytes"] or "1M"}


def _least_bandwidth() -> float | None:
    """Return the least average bus bandwidth in GB/s; None where there is no limit."""
    value = os.environ.get(LEAST_BANDWIDTH, "")
    try:
        return float(value) if value else None
    except ValueError:
        raise UsageError(f"{LEAST_BANDWIDTH}={value} is no bandwidth; give GB/s, or unset it") from None


@dataclass(frozen=True)
class _Table:
    """The lines of the program, as results arrive."""

    session: "Session"
    collective: Collective
    platform: str
    threads: int  # of a process
    gpus: int  # of a thread

    _of_size: "list[Result]" = field(default_factory=list)  # of the size whose row is not there yet

    def begin(self) -> None:
        """Print what stands above the rows."""
        self._print(self._opening())

    def add(self, result: "Result") -> None:
        """Print the rows of a size once all its results are there."""
        self._of_size.append(result)
        places = 2 if self.collective.in_place else 1
        if len(self._of_size) < places * len(self.session.sweep.implementations):
            return
        for name in dict.fromkeys(one.implementation for one in self._of_size):
            self._print(_row([one for one in self._of_size if one.implementation == name]))
        self._of_size.clear()

    def close(self) -> None:
        """Do nothing: there is no progress to take away."""

    def end(self, least: float | None, foreign: Path | None) -> bool:
        """Print what stands below the rows and write the JSON of -J; return whether the bandwidth is enough."""
        from collbench.cli._outputs import write_foreign
        from collbench.formats.nccl_tests_write import average, footer
        from collbench.results import observed

        results = list(observed(self.session.results))
        passed = least is None or average(results) >= least
        verdict = "" if least is None else "OK" if passed else "FAILED"
        self._print(footer(self.collective, results, verdict))
        if foreign:
            write_foreign(self.session, foreign)
        if self.session.path:
            click.echo(f"run file: {self.session.path}", err=True)
        return passed

    def _print(self, lines: Iterator[str]) -> None:
        for line in lines:
            click.echo(line)

    def _opening(self) -> Iterator[str]:
        from collbench.formats.nccl_tests_write import opening, settings, signature

        sweep, header = self.session.sweep, self.session.header
        sizes = sorted({case.nbytes for case in sweep.cases()})
        iterations = sweep.sampling.iters or 0
        options = settings(header, sweep.ranks, sizes, iterations=iterations, nthreads=self.threads, ngpus=self.gpus)
        yield signature(sweep.implementations[0], self.platform, sweep.ranks)
        yield from opening(self.collective, options, header, sweep.ranks)


def _row(results: "list[Result]") -> Iterator[str]:
    """Yield the row of one implementation and size, and a comment where it has no time or is wrong."""
    from collbench.formats.nccl_tests_write import row
    from collbench.results.collectives import Measurement, Untimed

    measured = {result.case.in_place: result for result in results if isinstance(result, Measurement)}
    yield row(results[0].case, (measured.get(False), measured.get(True)))
    for result in results:
        name = f"{result.implementation}{', in place' if result.case.in_place else ''}"
        if result.scheduling and result.scheduling.off_core:
            share = f"{result.scheduling.off_core:.0%} of the samples, which the mean is made of too"
            click.echo(f"{name}, {result.case.nbytes} B: ranks were off their cores in {share}", err=True)
        reason = result.reason if isinstance(result, Untimed) else result.wrong
        if reason:
            yield f"# {name}: {reason}"
