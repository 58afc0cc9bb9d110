"""Say in one line whether this machine is right: measured briefly, checked, and compared with what is expected.

For example:
  collbench check
  collbench check --op allreduce,allgather --reference floors.toml
  collbench check --run run.jsonl --on dgx-h100
  collbench check --fleet NIGHT --exclude-file exclude.txt
  collbench check --exit nagios --metrics /var/lib/node_exporter/collbench.prom
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from socket import gethostname
from typing import Any

import click

from collbench.analysis.judgement import EXITS, Word
from collbench.cli.options import PATH, RENDEZVOUS_FOLDER, STANDARD, json_option, option, options_of, try_output
from collbench.cli.progress import waiting
from collbench.cli.verdicts import EXIT, METRICS, junit_option, line_of
from collbench.commands.check import fleet_outputs
from collbench.commands.check import outputs as verdicts
from collbench.commands.check.judge import CheckResult
from collbench.commands.check.library import CheckRequest, check
from collbench.errors import CollbenchError, StorageError
from collbench.host import signals
from collbench.host.launcher import launched
from collbench.requests.declared import declared
from collbench.requests.notices import is_leader
from collbench.runfile.store import Writer

_OPTIONS = [
    click.Argument(["inputs"], nargs=-1, type=PATH, metavar="[FOLDER]"),
    *options_of(CheckRequest),
    RENDEZVOUS_FOLDER,
    EXIT,
    option("-q --quiet", "Print the line of the verdict and no more.", is_flag=True),
    json_option("all of it"),
    junit_option("a size"),
    METRICS,
    *fleet_outputs.OPTIONS,
]


@click.command("check", params=_OPTIONS)
def command(**options: Any) -> int:
    """Measure in rounds until it is sure whether everything is right and as fast as expected, and say so in one line.

    Expected is what --reference has; else what the model says of the system that the topology matches, or of --on; else
    what earlier good runs of this machine took, its baseline; on a CPU without those, what its own latency and copy
    speed come to.
    """
    if fleet_outputs.asked(options["fleet"]):
        return fleet_outputs.show(options)
    paths, exits = options | {"json": options["as_json"]}, options["exits"]
    printed = next((name for name in verdicts.OUTPUTS if paths[name] == STANDARD), "")
    files = {name: paths[name] for name in verdicts.OUTPUTS if paths[name] not in (None, STANDARD)}
    with redirect_stdout(sys.stderr if printed else sys.stdout):
        try:
            _try_paths(files, options["out"])
            request = {name: options[name] for name in declared(CheckRequest)}
            with _replacing_the_last_verdict(files, options["op"]), waiting("" if options["run"] else "measuring"):
                result = check(**request)
        except KeyboardInterrupt as cause:
            click.echo("collbench: interrupted: no verdict", err=True)
            return signals.status(cause)
        except CollbenchError as error:
            if exits != "plain":  # its reader reads standard output, and would take 2 for a verdict
                error.exit_status = EXITS[exits][Word.UNKNOWN]
                click.echo(line_of(exits, Word.UNKNOWN, str(error)))
            raise
        if not result:  # the first process of the launcher has it
            return 0
        if not options["quiet"] and exits == "plain":
            click.echo("\n".join(verdicts.lines(result)))
        elif result.hint.startswith("not stored"):
            click.echo(result.hint, err=True)
    lost = _write(files, result)
    click.echo(verdicts.OUTPUTS[printed](result) if printed else verdicts.line(result, exits))
    # Statuses for monitoring speak of the machine alone.
    return EXITS[exits][result.word] or int(lost and exits == "plain")


def _try_paths(files: Mapping[str, Path], out: Path | None) -> None:
    """Raise UsageError for what cannot be written to, before anything is measured; nothing there is changed."""
    for name, path in files.items():
        try_output(path, f"--{name} FILE", out)
    if out and is_leader(launched()):
        Writer(out).discard()


@contextmanager
def _replacing_the_last_verdict(files: Mapping[str, Path], op: str) -> Iterator[None]:
    """Write that the check has started, and if it fails, why: the files of one that dies keep no earlier OK."""
    why = f"started at {datetime.now().astimezone():%F %T %z}, no verdict"
    host = gethostname()
    begun = CheckResult(host, "", (op,), (), host=host, rounds=0, no_verdict=why)
    _write(files, begun)
    try:
        yield
    except CollbenchError as error:
        _write(files, replace(begun, no_verdict=f"no verdict: {error}"))
        raise


def _write(files: Mapping[str, Path], result: CheckResult) -> bool:
    """Write all files, and return whether any was lost; the verdict is printed in any case."""
    lost = False
    for name, path in files.items():
        try:
            if is_leader(launched()):
                verdicts.write(name, path, result)
        except StorageError as error:
            click.echo(f"collbench: error: {error}", err=True)
            lost = True
    return lost
