"""`all_reduce_perf` and the other programs of nccl-tests.

A program is a sweep with the options, defaults and table of nccl-tests.  Rows are printed as results arrive: means of
the samples, out of place and in place side by side, as `collbench export --to nccl-tests` writes them.
"""

import os
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from collbench.algorithms import is_library
from collbench.cli.options import HERE, PATH, QUIET, made, option, options_of, try_output, write_text
from collbench.cli.progress import LiveTable
from collbench.cli.running import finish, run_session
from collbench.collectives import Collective, find_collective, of_nccl_tests
from collbench.commands.formats.importing import select
from collbench.commands.formats.nccl_tests_write import average, footer, opening, row, settings, signature, write_json
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.measure.session import Session
from collbench.requests.sweeps import SweepRequest, measured_sweep
from collbench.results import Measurement, Result, by_key, observed

LEAST_BANDWIDTH = "NCCL_TESTS_MIN_BW"
"""A variable of nccl-tests: a test fails if its average bus bandwidth in GB/s is smaller."""
OPTIONS = "stepbytes warmup datatype redop root unalign budget timeout spin bind out"  # as in a sweep
_RECORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
USUAL = _RECORDS["usual"]
"""Defaults of nccl-tests that differ from those of a sweep."""


class Unneeded(NamedTuple):
    """An option of nccl-tests without effect in collbench; stderr says why if its value is not the default."""

    letter: str
    name: str
    usual: int
    why: str


UNNEEDED = tuple(Unneeded(*each) for each in _RECORDS["unneeded"])
_PATHS = {(register, policy): path for register, policy, path in _RECORDS["paths"]}
"""The implementations that -R and -x of nccl-tests select."""


def command_named(name: str) -> click.Command | None:
    """Return the command of a program, or None if nccl-tests has no program *name*."""
    with suppress(UsageError):
        collective = find_collective(name)
        return _command(collective, name) if collective in of_nccl_tests() else None
    return None


def _command(collective: Collective, name: str) -> click.Command:
    options = options_of(SweepRequest, OPTIONS, **USUAL)
    for each in options:
        if each.name == "redop":
            each.opts = ["-o", *each.opts, "--op"]  # names of nccl-tests
        if each.name == "out":
            each.opts = ["--out"]
    return click.Command(
        name,
        params=[*options, QUIET, HERE, *_nccl_options()],
        callback=lambda **options: _run(collective, options),
        help=f"Measure {collective.name} and print the table of nccl-tests' {name}.\n\n"
        "Options mean the same as in nccl-tests; stderr names options without effect.  Results are stored only with "
        "--out or -J.",
        epilog=f"\b\nFor example:\n  {name} -b 8 -e 128M -f 2 -g 2",
        context_settings={"show_default": True},
    )


def _nccl_options() -> Iterator[click.Option]:
    """Yield the options that only nccl-tests has; help hides options without effect."""
    yield option("-t --nthreads", "Threads; times -g, the ranks.", type=click.IntRange(min=1), default=1)
    yield option("-J --output_file", "Write nccl-tests' JSON.", type=PATH, metavar="FILE")
    yield option("-R --local_register", "1: registered buffers; 2: symmetric.", type=click.IntRange(0, 2), default=0)
    yield option("-x --cta_policy", "With -R 2; 1: few CTAs, 2: copy engines.", type=click.IntRange(0, 2), default=0)
    for letter, name, usual, _ in UNNEEDED:
        yield option(f"-{letter} --{name}", type=int, default=usual, hidden=True)


def _run(collective: Collective, options: dict[str, Any]) -> int:
    # Check all options before anything is measured.
    joined, least = launched(), _least_bandwidth()
    try_output(options["output_file"], "-J FILE", options["out"])
    threads, gpus = options["nthreads"], options["ranks"]
    unneeded = [each for each in UNNEEDED if options[each.name] != each.usual]
    remarks = [f"-{each.letter} {options[each.name]} has no effect: {each.why}" for each in unneeded]
    _choose_path(options)
    if joined and threads * gpus > 1:
        each = f"the launcher started {joined[1]} processes, and each is a rank"
        raise UsageError(f"-t {threads} -g {gpus}: {each}; leave -t and -g out")

    # Without -f, or with a factor of 1, sizes of nccl-tests differ by -i, by default 1 MiB.
    if options["stepfactor"] <= 1 or options["stepbytes"]:
        options |= {"stepfactor": 2.0, "stepbytes": options["stepbytes"] or "1M"}
    ranks = None if joined else threads * gpus
    request = made(SweepRequest, options, op=collective.name, ranks=ranks, starts=1)
    platform, sweep = measured_sweep(request, joined)
    sweep = replace(sweep, both_places=True)
    if options["impl"] == USUAL["impl"]:  # only the table of the first library
        sweep = replace(sweep, implementations=sweep.implementations[:1])
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
            _write_foreign(session, options["output_file"])
        if session.path:
            click.echo(f"run file: {session.path}", err=True)
    return finish([session]) or int(not passed)


def _choose_path(options: dict[str, Any]) -> None:
    """Set the implementation that -R and -x select."""
    chosen = options["local_register"], options["cta_policy"]
    if chosen not in _PATHS or (any(chosen) and options["impl"] != USUAL["impl"]):
        choices = ", ".join(f"-R {register} -x {policy}" for register, policy in _PATHS)
        raise UsageError(f"-R {chosen[0]} -x {chosen[1]} is not possible; choose from {choices}, and leave --impl out")
    options["impl"] = _PATHS[chosen] or options["impl"]


def _write_foreign(session: Session, path: Path) -> None:
    """Write the JSON of nccl-tests into a file, with the library's rows if there are several implementations."""
    results = [result for result in session.results if isinstance(result, Measurement)]
    if not results:
        raise UsageError(f"-J {path}: nothing to write, since no row has a time")
    results.sort(key=lambda row: not is_library(row.implementation))
    write_text(path, "-J FILE", write_json(select(session.header, results, path)))


def _least_bandwidth() -> float | None:
    """Return the least average bus bandwidth in GB/s, or None if it is not set."""
    value = os.environ.get(LEAST_BANDWIDTH, "")
    try:
        return float(value) if value else None
    except ValueError:
        raise UsageError(f"{LEAST_BANDWIDTH}={value} is not a number; give GB/s, or unset it") from None


class _Table(LiveTable):
    """The output of the program as results arrive; `threads` per process, `gpus` per thread."""

    def __init__(self, session: Session, collective: Collective, platform: str, threads: int, gpus: int) -> None:
        super().__init__()
        self._session, self._collective, self._platform = session, collective, platform
        self._threads, self._gpus = threads, gpus
        self._of_size: list[Result] = []  # results of the unfinished row

    def begin(self) -> None:
        """Print the lines above the rows."""
        sweep, header = self._session.sweep, self._session.header
        sizes = sorted({case.nbytes for case in sweep.cases()})
        iterations = sweep.sampling.iters or 0
        options = settings(header, sweep.ranks, sizes, iterations=iterations, nthreads=self._threads, ngpus=self._gpus)
        click.echo(signature(sweep.implementations[0], self._platform, sweep.ranks))
        click.echo("\n".join(opening(self._collective, options, header, sweep.ranks)))

    def add(self, result: Result) -> None:
        """Print the rows of a size when all its results have arrived."""
        self._of_size.append(result)
        places = 2 if self._collective.in_place else 1
        if len(self._of_size) < places * len(self._session.sweep.implementations):
            return
        for results in by_key(self._of_size, lambda result: result.implementation).values():
            click.echo("\n".join(_row(results)))
        self._of_size.clear()


def _row(results: Sequence[Result]) -> Iterator[str]:
    """Yield the row of one implementation and size, and a comment for each missing time or wrong result."""
    measured = {result.case.in_place: result for result in results if isinstance(result, Measurement)}
    yield row(results[0].case, (measured.get(False), measured.get(True)))
    for result in results:
        name = result.implementation + ", in place" * result.case.in_place
        if result.scheduling and result.scheduling.off_core:
            share = f"{result.scheduling.off_core:.0%} of its samples; the mean includes them"
            click.echo(f"{name}, {result.case.nbytes} B: other programs disturbed {share}", err=True)
        if reason := result.reason or result.wrong:
            yield f"# {name}: {reason}"
