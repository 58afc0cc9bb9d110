"""Measure collectives over a sweep of message sizes: table, run file and plots.

For example:
  collbench sweep
  collbench sweep --op allreduce,broadcast -b 1K -e 1G -f 2 -d bfloat16
  collbench sweep --impl mpi,two-shot -m 8:64K --json - | jq .results
  mpirun -n 16 collbench sweep --op allreduce
"""

from typing import TYPE_CHECKING, Any

import click

from collbench.cli._names import collectives, completed, dtypes, implementations, places, redops
from collbench.cli._nccl_options import NAMES, nccl_options
from collbench.cli._paths import PATH
from collbench.platforms import platforms

if TYPE_CHECKING:
    from collbench.cli._outputs import Outputs

MEASURING = (
    *("iters", "warmup", "check", "cudagraph", "no_graph", "budget", "timeout", "spin", "bind", "starts"),
    *("ab", "mpi", "percentiles"),
    *NAMES,
)
"""The options that say how to measure; they change no prediction."""


@click.command(context_settings={"show_default": True}, params=nccl_options())
@click.option(
    "--op",
    default="allreduce",
    metavar="NAME[,NAME]|all",
    shell_complete=completed(collectives),
    help="Collectives (see collbench list).",
)
@click.option(
    "--impl",
    default="all",
    metavar="NAME[,NAME]|library|ladder|narrow|all",
    shell_complete=completed(implementations),
    help="Implementations.",
)
@click.option(
    "--on",
    default="auto",
    metavar="|".join(("auto", *platforms(), "SYSTEM", "FILE.toml")),
    shell_complete=completed(places, several=False),
    help="Where the ranks live; on a described system (collbench predict --help) nothing runs, a model predicts.",
)
@click.option("--nodes", type=int, metavar="N", help="Nodes of a described system; default: as it says, mostly 1.")
@click.option("-g", "--ranks", "--ngpus", "ranks", type=int, help="Ranks; default: every GPU, on a CPU 2.")
@click.option(
    "--ranks-per-node", type=int, metavar="N", help="GPUs to use of each node of a described system; default: all."
)
@click.option("-b", "--minbytes", default="8", metavar="SIZE", help="Smallest message.")
@click.option(
    "-e", "--maxbytes", metavar="SIZE", help="Largest message; default: 128M, or what free memory allows; predicted 8G."
)
@click.option("-f", "--stepfactor", type=float, default=4.0, help="Each size is so many times the last.")
@click.option("-i", "--stepbytes", metavar="SIZE", help="Sizes this far apart, instead of -f.")
@click.option("-n", "--iters", type=int, help="Take so many samples, instead of as many as are needed.")
@click.option("-w", "--warmup", "--warmup_iters", "warmup", type=int, default=1, help="Untimed samples first.")
@click.option("-c", "--check", type=int, default=1, help="For nccl-tests' sake: every row is checked.")
@click.option(
    "-d",
    "--datatype",
    default="float",
    metavar="NAME[,NAME]|all",
    shell_complete=completed(dtypes),
    help="Element types.",
)
@click.option(
    "-o",
    "--redop",
    default="sum",
    metavar="NAME[,NAME]|all",
    shell_complete=completed(redops),
    help="Reductions.",
)
@click.option("-r", "--root", type=int, default=0, help="Root rank of collectives that have one.")
@click.option("--in-place", is_flag=True, help="Send from and receive into one buffer.")
@click.option("-G", "--cudagraph", type=int, default=1, help="On a GPU, time captured graphs; 0: launches.")
@click.option("--no-graph", is_flag=True, help="The same as -G 0.")
@click.option("--budget", type=float, default=0.5, help="Seconds for a case, all implementations together.")
@click.option("-T", "--timeout", type=float, default=30.0, help="Seconds without progress that fail a case.")
@click.option("--spin", default="auto", metavar="auto|yield|busy", help="On a CPU, how a rank waits.")
@click.option(
    "--bind", default="core", metavar="core|none", help="On a CPU, bind each rank to a core where there are enough."
)
@click.option(
    "--ab",
    multiple=True,
    metavar="'NAME=VALUE ...'",
    help="Measure with these variables in turn with the environment as it is; NAME= makes one empty, -NAME unset. "
    "Given twice: one setting against the other.",
)
@click.option(
    "--mpi",
    default="",
    metavar="LIB[,LIB]",
    help="On a CPU, the MPI libraries to measure, in turn: mpich, openmpi, intel, ... or a folder; default: mpi4py's.",
)
@click.option(
    "--starts",
    type=int,
    metavar="N",
    help="Start the ranks so often: ± covers what another start gives; default: 3 where that is quick, else 1.",
    show_default=False,
)
@click.option("-q", "--quiet", is_flag=True, help="Rows and where they are, and no more.")
@click.option(
    "--json",
    "as_json",
    type=PATH,
    metavar="FILE|-",
    help="Write what was measured as JSON too; - is standard output, and the table goes to stderr.",
)
@click.option("-I", "--percentiles", is_flag=True, help="Show min, p95, p99 and max of the samples too.")
@click.option("--out", type=PATH, help="Folder to make for run file and plots.")
@click.option("--plot/--no-plot", default=True, help="Draw the plots at the end.")
def command(**options: Any) -> int:
    """Measure collectives over a sweep of message sizes: table, run file and plots."""
    from collbench.cli._outputs import Outputs

    outputs = Outputs.of(options)
    with outputs.aside():
        return _carry_out(options, outputs)


def _carry_out(options: dict[str, Any], outputs: "Outputs") -> int:
    from collbench.api.sweeping import prepare
    from collbench.api.wanted import default_folder
    from collbench.cli import _nccl_options
    from collbench.cli._sweep_table import carry_out
    from collbench.errors import UsageError
    from collbench.host.launcher import launched

    remarks = list(_nccl_options.remarks(options))
    options = _nccl_options.understood(options, launched())
    if options["ab"]:
        if outputs.json or outputs.foreign:
            raise UsageError("--json and -J hold one run, and --ab makes two; leave them out, and read the run files")
        from collbench.cli._ab import carry_out_pair

        return carry_out_pair(options)
    if options["on"] not in ("auto", *platforms()):
        from collbench.api.predicting import find_system  # a model, which takes as long to load as all the rest
        from collbench.cli._predict import predict

        if system := find_system(options["on"]):
            return predict(system, options, outputs, MEASURING)
    session, more = prepare(options, lambda sweep: options["out"] or default_folder(sweep))
    return carry_out(session, [*remarks, *more], options["percentiles"], outputs)
