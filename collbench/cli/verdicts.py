"""What verdicts of `check` and `scan` say to other programs: options, metrics, names of hosts, files."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from collbench.cli.options import PATH, STANDARD, option, write_text
from collbench.errors import StorageError, writing
from collbench.runfile.store import replace_whole
from collbench.units import printable

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # a name that a scheduler takes as a single node
_LISTED = 60  # names that are printed

EXIT = option(
    "--exit exits",
    "Whom the exit status is for; in the order OK, WARN, FAIL, UNKNOWN: plain 0, 0, 3, 4; nagios 0, 1, 2, 3; "
    "npd 0, 0, 1, 2.",
    type=click.Choice(["plain", "nagios", "npd"]),
    default="plain",
    show_default=True,
)

METRICS = option("--metrics", "Write metrics for node_exporter's text-file collector.", type=PATH, metavar="FILE.prom")


def junit_option(of_each: str) -> click.Option:
    """Return the option that writes JUnit's XML, with a test case of each so and so."""
    return option("--junit", f"Write a JUnit test case {of_each}.", type=PATH, metavar="FILE.xml")


def gauges(families: Mapping[tuple[str, str], Mapping[str, float]]) -> str:
    """Return metrics in Prometheus' text format: samples by their labels, of each name without its first word."""
    lines: list[str] = []
    for (name, meaning), samples in families.items():
        lines += [f"# HELP collbench_{name} {meaning}", f"# TYPE collbench_{name} gauge"] if samples else []
        lines += [f"collbench_{name}{labels} {value:.10g}" for labels, value in samples.items()]
    return "\n".join(lines)


def braced(labels: Mapping[str, str]) -> str:
    r"""Return labels as text; of the signs that the format escapes, printable text has no newline."""
    quoted = {name: printable(value).replace("\\", r"\\").replace('"', r"\"") for name, value in labels.items()}
    return "{" + ",".join(f'{name}="{value}"' for name, value in quoted.items()) + "}"


def host_lines(names: Iterable[str]) -> str:
    """Return names of nodes, a line each as schedulers take them; those that no host can have are said on stderr."""
    ordered = sorted(set(names))
    if unfit := [name for name in ordered if not _HOST.fullmatch(name)]:
        click.echo(f"not excluded, since no host is called that: {', '.join(unfit[:_LISTED])}", err=True)
    return "".join(f"{name}\n" for name in ordered if name not in unfit)


def write_verdict(output: str, path: Path, text: str) -> None:
    """Write a verdict into the file that the option `output` names; StorageError if it cannot be written."""
    name = f"--{output.replace('_', '-')} FILE"
    if path == STANDARD:
        write_text(path, name, text)
        return
    regular = path.is_file() or not path.exists()
    with writing(path, name, StorageError):
        path.parent.mkdir(parents=True, exist_ok=True)  # the folder of --out is made at the end
        if output == "metrics" and regular and not path.is_symlink():  # node_exporter reads it at any time
            replace_whole(path, f"{text}\n".encode())
        else:
            path.write_text(f"{text}\n" if text else "", encoding="utf-8")
