"""Measure collectives over a sweep of message sizes: table, run file and plots.

For example:
  collbench sweep
  collbench sweep --op allreduce,broadcast -b 1K -e 1G -f 2 -d bfloat16 --json - | jq .results
  mpirun -n 16 collbench sweep --op allreduce
  collbench sweep --resume results/runs/20260131-120000-allreduce-node1
"""

from collections.abc import Mapping, Sequence
from typing import Any
from warnings import warn

import click

from collbench.cli.options import PATH, QUIET, Renaming, given, json_option, made, option, options_of
from collbench.cli.results_table import EXTRAS
from collbench.cli.running import Outputs
from collbench.cli.sweeping import PLOT, show_prediction, show_sweep
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.presence import UNTIL
from collbench.present.notices import is_leader, renamed
from collbench.requests.declared import declared, takes
from collbench.requests.sessions import measuring_session, predicting_session, resuming_session, run_to_end
from collbench.requests.sweeps import PredictRequest, SweepRequest, default_folder, find_system
from collbench.requests.words import places
from collbench.runfile.store import Run

OUTPUT = ("quiet", "as_json", "plot")
_WITH_RESUME = ("resume", *EXTRAS, *OUTPUT)
_OPTIONS = [
    *options_of(SweepRequest),
    option(
        "--ab",
        "Measure with these variables and without them, interleaved; NAME= empties a variable, -NAME unsets it. Given "
        "twice: compare the two settings.",
        multiple=True,
        metavar="'NAME=VALUE ...'",
    ),
    QUIET,
    json_option("the results"),
    option("-I --percentiles", "Also show min, p95, p99 and max of the samples.", is_flag=True),
    option("-C --report_cputime", "Show the host's time to enqueue an operation on a GPU.", is_flag=True),
    option("-M --memory_report", "Show the GPU memory taken by NCCL, and by other programs meanwhile.", is_flag=True),
    PLOT,
    option("--resume", "Measure the missing rows of a sweep, with its settings.", type=PATH, metavar="RUN"),
]


@click.command(cls=Renaming, earlier="nodes ranks_per_node", context_settings={"show_default": True}, params=_OPTIONS)
def command(**options: Any) -> int:
    """Measure collectives over a sweep of message sizes: table, run file and plots.

    algbw in the table is message size over time.  busbw is algbw times a factor of the collective, 2(n-1)/n for an
    all-reduce on n ranks.  It is comparable with the rate of the links, and across collectives and numbers of ranks.
    """
    outputs, extra = Outputs.of(options), [name for name in EXTRAS if options[name]]
    with outputs.aside():
        if options["resume"]:
            return resume(options, outputs, extra)
        request = made(SweepRequest, options)
        if options["ab"]:
            from collbench.commands.sweep import ab

            return ab.measure_pair(request, options["ab"], outputs, options["out"], extra)
        if not request.measured:
            system = find_system(request.on, places())
            renamed(f"sweep --on {request.on}", f"predict {request.on} --impl all")
            return show_prediction(system, request, outputs, _without_effect())
        session, remarks = measuring_session(request, default_folder)
        return show_sweep(session, outputs, remarks, extra)


def resume(options: Mapping[str, Any], outputs: Outputs, extra: Sequence[str]) -> int:
    """Measure the missing rows of a run, print the whole run, and return the exit status."""
    path = options["resume"]
    if others := ", ".join(word for name, word in given().items() if name not in _WITH_RESUME):
        raise UsageError(f"--resume keeps the settings and the folder of {path}; leave out {others}")
    if session := resuming_session(path):
        return show_sweep(session, outputs, [], extra)
    if is_leader(launched()):
        click.echo(f"{path}: nothing is missing")
    return 0


def _without_effect() -> list[str]:
    both = ("on", *declared(PredictRequest), *OUTPUT)
    unused = ", ".join(word for name, word in given().items() if name not in both)
    return [f"without effect on a described system: {unused}"] if unused else []


@takes(SweepRequest)
def sweep(request: SweepRequest) -> Run:
    """Measure collectives over a sweep of message sizes, as `collbench sweep` does.

    Returns:
        The run: its header and a result for every case and implementation.  A case that failed is a result.

    >>> import collbench
    >>> run = collbench.sweep("allreduce", on="cpu", ranks=2, impl="mpi", minbytes="1K", maxbytes="16K", iters=7)
    >>> [(row["nbytes"], row["outcome"]) for row in run.rows()]
    [(1024, 'ok'), (4096, 'ok'), (16384, 'ok')]

    """
    if request.measured:
        return run_to_end(measuring_session(request).session, request.each)
    system, now = find_system(request.on, places()), f"collbench.predict({request.on!r}, impl='all')"
    warn(f"collbench.sweep(on={request.on!r}) is {now} now; the earlier form goes with {UNTIL}", DeprecationWarning, 4)
    return run_to_end(predicting_session(system, request), request.each)
