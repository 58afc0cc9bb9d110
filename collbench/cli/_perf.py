"""`all_reduce_perf` and its like: a sweep with the options, the usual values and the table of nccl-tests.

The table is the one that `collbench export --to nccl-tests` writes, row by row as results arrive: means of the samples,
out of place and in place side by side.  What a program is called is nccl-tests' word for its collective.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
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

USUAL = {
    "impl": "library",
    "minbytes": "32M",
    "maxbytes": "32M",
    "stepfactor": 0.0,
    "iters": 20,
    "ranks": 1,
    "cudagraph": 0,
}
"""Of nccl-tests, where a sweep's are others."""


def programs() -> list[str]:
    """What nccl-tests calls its programs."""
    from collbench.formats.nccl_tests.write_text import program

    return [program(collective) for collective in of_nccl_tests()]


def perf(name: str) -> click.Command | None:
    """The command of a program's name; None if nccl-tests has none of that name."""
    if not name.endswith(SUFFIX):
        return None
    with suppress(UsageError):
        collective = find_collective(name)
        return _command(collective, name) if collective in of_nccl_tests() else None
    return None


def _command(collective: Collective, name: str) -> click.Command:
    from collbench.cli._nccl_options import nccl_options
    from collbench.cli._sweep_options import HERE, shared

    first = ("minbytes", "maxbytes", "stepfactor", "stepbytes", "iters", "warmup", "check", "datatype", "redop", "root")
    more = ("impl", "ranks", "cudagraph", "budget", "timeout", "spin", "bind", "out", "quiet")
    usual = {name: value for name, value in USUAL.items() if name in (*first, *more)}
    params = [*shared(*first, *more, **usual), HERE]
    for option in params:
        if option.name == "redop":
            option.opts = [*option.opts, "--op"]  # what nccl-tests calls it
    return click.Command(
        name,
        params=[*params, *nccl_options()],
        callback=lambda **options: _carry_out(collective, options),
        help=f"Measure {collective.name} as nccl-tests' {name} does, and print its table.\n\n"
        "Its options keep their meaning; `collbench help nccl-tests` lists those without effect.  Nothing is "
        "stored unless --out or -J says where.",
        epilog=f"\b\nFor example:\n  {name} -b 8 -e 128M -f 2 -g 2",
        context_settings={"show_default": True},
    )


def _carry_out(collective: Collective, options: dict[str, Any]) -> int:
    from collbench.api.wanted import make_sweep
    from collbench.cli import _nccl_options
    from collbench.cli._carried_out import carried_out
    from collbench.cli._sweep_options import DEFAULTS
    from collbench.host.launcher import launched
    from collbench.measure.session import Session

    joined, _ = launched(), _least()  # which is refused before anything is measured
    threads, gpus, foreign = options["nthreads"], options["ranks"], options["output_file"]
    said = list(_nccl_options.remarks(options))
    if joined:
        _refuse_several(gpus, joined)
        options["ranks"] = None  # as many as the launcher started
    options |= _sizes(options)
    platform, sweep = make_sweep(DEFAULTS | _nccl_options.understood(options, joined) | {"op": collective.name}, joined)
    named = sweep.implementations[: 1 if options["impl"] == USUAL["impl"] else None]
    session = Session(platform, replace(sweep, implementations=named, both_places=True), joined, options["out"])
    table = _Table(session, collective, platform, (threads, gpus))
    status = carried_out(session, table.show, lambda: table.close(foreign), said, options["quiet"])
    return status or table.status


def _refuse_several(gpus: int, joined: tuple[int, int]) -> None:
    if gpus > 1:
        raise UsageError(f"-g {gpus}: the launcher started {joined[1]} processes, and each is a rank; leave -g out")


def _sizes(options: Mapping[str, Any]) -> dict[str, Any]:
    """A factor of 1, as nccl-tests has it without -f, leaves the steps of -i: by default 1 MiB."""
    if options["stepfactor"] > 1 and not options["stepbytes"]:
        return {}
    return {"stepfactor": 2.0, "stepbytes": options["stepbytes"] or "1M"}


def _least() -> float | None:
    """Of the average bus bandwidth, in GB/s; None where nobody wants one."""
    said = os.environ.get(LEAST_BANDWIDTH, "")
    try:
        return float(said) if said else None
    except ValueError:
        raise UsageError(f"{LEAST_BANDWIDTH}={said} is no bandwidth; give GB/s, or unset it") from None


class _Table:
    """The lines of the program, as results arrive."""

    def __init__(self, session: "Session", collective: Collective, platform: str, per: tuple[int, int]) -> None:
        self._session, self._collective, self._platform = session, collective, platform
        self._per = per  # process: threads, and GPUs of each
        self.status = 0

    def show(self) -> None:
        """All rows; every process takes part, and one prints."""
        held: list[Result] = []
        for line in self._opening() if self._session.leader else ():
            click.echo(line)
        for result in self._session.run():
            held.append(result)
            if len(held) < len(self._places) * len(self._session.sweep.implementations):
                continue
            for line in self._lines(held) if self._session.leader else ():
                click.echo(line)
            held = []

    def close(self, foreign: Path | None) -> None:
        """What stands below the rows, and the JSON of -J."""
        from collbench.cli._outputs import write_foreign
        from collbench.formats.nccl_tests.write_text import average, footer
        from collbench.results import observed

        results = list(observed(self._session.results))
        least = _least()
        verdict = "" if least is None else "OK" if average(results) >= least else "FAILED"
        self.status = int(verdict == "FAILED")
        for line in footer(self._collective, results, verdict):
            click.echo(line)
        if foreign:
            write_foreign(self._session, foreign)
        if self._session.path:
            click.echo(f"run file: {self._session.path}", err=True)

    @property
    def _places(self) -> tuple[bool, ...]:
        return (False, True) if self._collective.in_place else (False,)

    def _opening(self) -> Iterator[str]:
        from collbench.formats.exported import ExportSelection, signed
        from collbench.formats.nccl_tests.settings import settings
        from collbench.formats.nccl_tests.write_text import listed, opening

        sweep, header = self._session.sweep, self._session.header
        sizes = sorted({case.nbytes for case in sweep.cases()})
        threads, gpus = self._per
        iterations = sweep.sampling.iters or 0
        said = settings(header, sweep.ranks, sizes, iterations=iterations, threads=threads, gpus=gpus)
        selection = ExportSelection(header, (), lambda reason: None)
        yield signed(sweep.implementations[0], self._platform, sweep.ranks)
        yield from opening(self._collective, said, listed(selection, sweep.ranks))

    def _lines(self, results: "list[Result]") -> Iterator[str]:
        """A row for the results of a size, and a comment where one has no time."""
        from collbench.formats.exported import ExportLine
        from collbench.formats.nccl_tests.write_text import MISSING, row, start
        from collbench.results import Measurement, Untimed

        for name in dict.fromkeys(result.implementation for result in results):
            own = [result for result in results if result.implementation == name]
            out, inside = (
                next((one for one in own if isinstance(one, Measurement) and one.case.in_place == place), None)
                for place in (False, True)
            )
            yield row(ExportLine(out, inside)) if out or inside else start(own[0].case) + MISSING * 2
            for result in own:
                reason = result.reason if isinstance(result, Untimed) else result.wrong
                if result.scheduling and result.scheduling.off_core:
                    place = ", in place" if result.case.in_place else ""
                    share = f"{result.scheduling.off_core:.0%} of the samples, which the mean is made of too"
                    click.echo(
                        f"{name}, {result.case.nbytes} B{place}: ranks were off their cores in {share}", err=True
                    )
                if reason:
                    yield f"# {name}{', in place' if result.case.in_place else ''}: {reason}"
