"""Verdicts for other programs: lines, JSON, JUnit, metrics, exit statuses, host names.

Sources: Nagios plugin API and Monitoring Plugins guidelines (exit statuses, performance data); node-problem-detector
docs/custom_plugin_monitor.md; Prometheus text format 0.0.4 and node_exporter's collector/textfile.go.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, TextIO
from xml.etree import ElementTree

import click

from collbench.analysis.judgement import EXITS, Judgement, Word
from collbench.cli.options import PATH, STANDARD, option, try_output, write_text
from collbench.errors import CollbenchError, StorageError, writing
from collbench.exits import BAD, FAULT, GOOD, UNKNOWN
from collbench.host.files import replace_whole
from collbench.units import printable

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # a scheduler's name of a single node
_LISTED = 60  # names printed
_NAGIOS = {0: "OK", 1: "WARNING", 2: "CRITICAL", 3: "UNKNOWN"}
_NPD_LENGTH = 80  # bytes kept by node-problem-detector
SCHEMA = 2
"""Schema of JSON with a verdict: 2 has `word`, `host`, `limit` and `sight`; 1 had `status` and no number."""
STATUS_METRIC = "0 OK, 1 FAST, 2 SLOW or WRONG, 3 UNKNOWN"
"""Values of a metric that holds a verdict, as Nagios' statuses."""


def _statuses(reader: str) -> str:
    return f"{reader} {', '.join(str(EXITS[reader][word]) for word in (Word.OK, Word.FAST, Word.SLOW, Word.UNKNOWN))}"


EXIT = option(
    "--exit exits",
    f"Exit statuses for OK, FAST, SLOW or WRONG, UNKNOWN: {'; '.join(map(_statuses, EXITS))}.",
    type=click.Choice([*EXITS]),
    default="plain",
    show_default=True,
)

GATE = option("--gate gated", f"Exit with {FAULT} if WRONG or SLOW, {UNKNOWN} if UNKNOWN.", is_flag=True)
METRICS = option("--metrics", "Write metrics for node_exporter's text-file collector.", type=PATH, metavar="FILE.prom")


def junit_option(of_each: str) -> click.Option:
    """Return the option --junit; `of_each` names the subject of a test case in its help."""
    return option("--junit", f"Write a JUnit test case {of_each}.", type=PATH, metavar="FILE.xml")


def line_of(exits: str, word: Word, words: str) -> str:
    """Return the line of a judgement or an error for its reader (a key of EXITS)."""
    words = printable(words)
    if exits == "nagios":  # a bar would begin performance data
        state = _NAGIOS[EXITS[exits][word]]
        why = "" if state == word.value else f"{word.value} "
        return f"COLLBENCH {state}: {why}{words.replace('|', '/')}"
    line = f"collbench: {word.value} {words}"
    return line.encode()[:_NPD_LENGTH].decode(errors="ignore") if exits == "npd" else line


def head_of(judgement: Judgement, host: str, measured: bool = True) -> dict[str, Any]:
    """Return the first fields of JSON with a judgement; `host` is the judged host, or this one."""
    return {"schema": SCHEMA, "host": host, "measured": measured} | judgement.fields()


def junit_suite(label: str, program: str, tests: Iterable[Judgement]) -> ElementTree.Element:
    """Return a suite with a test for each judgement; WRONG and SLOW fail, UNKNOWN is skipped."""
    suite = ElementTree.Element("testsuite", name=printable(label))
    for judgement in tests:
        case = ElementTree.SubElement(suite, "testcase", name=printable(judgement.what), classname=program)
        if judgement.word in (Word.FAST, Word.OK):
            ElementTree.SubElement(case, "system-out").text = printable(judgement.says)
        else:
            kind = "skipped" if judgement.word is Word.UNKNOWN else "failure"
            ElementTree.SubElement(case, kind, message=printable(f"{judgement.word.value}: {judgement.reason}"))
    kinds = [result.tag for case in suite for result in case]
    counts = {"failures": kinds.count("failure"), "errors": 0, "skipped": kinds.count("skipped")}
    suite.attrib |= {name: str(count) for name, count in ({"tests": len(kinds)} | counts).items()}
    return suite


def junit(suites: Sequence[ElementTree.Element]) -> str:
    """Return suites as XML; several have a common root."""
    root = suites[0]
    if len(suites) > 1:
        root = ElementTree.Element("testsuites", name="collbench")
        root.extend(suites)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def gauges(families: Mapping[tuple[str, str], Mapping[str, float]]) -> str:
    """Return metrics in Prometheus' text format; `families` maps (name without prefix, help) to samples by label."""
    lines: list[str] = []
    for (name, meaning), samples in families.items():
        lines += [f"# HELP collbench_{name} {meaning}", f"# TYPE collbench_{name} gauge"] if samples else []
        lines += [f"collbench_{name}{labels} {value:.10g}" for labels, value in samples.items()]
    return "\n".join(lines)


def braced(labels: Mapping[str, str]) -> str:
    """Return labels as text, with backslashes and quotes escaped; printable text has no newline to escape."""
    quoted = {name: printable(value).replace("\\", r"\\").replace('"', r"\"") for name, value in labels.items()}
    return "{" + ",".join(f'{name}="{value}"' for name, value in quoted.items()) + "}"


def host_lines(names: Iterable[str]) -> str:
    """Return names of nodes for schedulers, one a line; impossible names are reported on stderr."""
    ordered = sorted(set(names))
    if unfit := [name for name in ordered if not _HOST.fullmatch(name)]:
        click.echo(f"not excluded, since these are no host names: {', '.join(unfit[:_LISTED])}", err=True)
    return "".join(f"{name}\n" for name in ordered if name not in unfit)


@contextmanager
def errors_for(exits: str) -> Iterator[None]:
    """Print an error as a line for its reader (a key of EXITS), with status UNKNOWN: 2 would mean a verdict."""
    try:
        yield
    except CollbenchError as error:
        if exits != "plain":
            error.exit_status = EXITS[exits][Word.UNKNOWN]
            click.echo(line_of(exits, Word.UNKNOWN, str(error)))
        raise


class Destinations:
    """Destinations of a verdict: files by option name, and the reader named by `--exit`."""

    def __init__(self, options: Mapping[str, Any], names: Iterable[str]) -> None:
        self.exits: str = options["exits"]
        paths = {name: options["as_json" if name == "json" else name] for name in names}
        self.paths: dict[str, Path] = {name: path for name, path in paths.items() if path}
        self.printed = STANDARD in self.paths.values()
        """Whether only a document goes to standard output."""
        self.brief = options["quiet"] or self.exits != "plain"
        """Whether only the line of the verdict is printed."""

    def aside(self) -> redirect_stdout[TextIO]:
        """Redirect other output to standard error if a document goes to standard output."""
        return redirect_stdout(sys.stderr if self.printed else sys.stdout)

    def try_files(self, folder: Path | None) -> None:
        """Raise UsageError if a file cannot be written, before anything is measured; no file is changed."""
        for name, path in self.paths.items():
            try_output(path, _file(name), folder)

    def write(self, document: Callable[[str], str], begun: bool = False) -> bool:
        """Write each document, and return whether any was lost; errors do not keep the verdict from being printed.

        `begun` only replaces earlier verdicts, so it skips pipes and terminals.
        """
        lost = False
        for name, path in self.paths.items():
            if begun and (path == STANDARD or (path.exists() and not path.is_file())):
                continue
            try:
                write_verdict(name, path, document(name))
            except StorageError as error:
                click.echo(f"collbench: error: {error}", err=True)
                lost = True
        return lost

    def end(self, word: Word, line: str, lost: bool) -> int:
        """Print the line, unless a document was printed, and return the exit status."""
        if not self.printed:
            click.echo(line)
        # Statuses for monitoring judge only the machine, not lost files.
        return EXITS[self.exits][word] or (BAD if lost and self.exits == "plain" else GOOD)


def write_verdict(output: str, path: Path, text: str) -> None:
    """Write a verdict to the file of the option `output`; StorageError if it cannot be written."""
    if path == STANDARD:
        write_text(path, _file(output), text)
        return
    with writing(path, _file(output), StorageError):
        path.parent.mkdir(parents=True, exist_ok=True)  # the folder of --out is made at the end
        # node_exporter and schedulers, which read these two, are other users.
        replace_whole(path, f"{text}\n" if text else "", 0o644 if output in ("metrics", "exclude_file") else None)


def _file(output: str) -> str:
    return f"--{output.replace('_', '-')} FILE"
