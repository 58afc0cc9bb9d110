"""What a sweep writes besides its table and its run file: pictures, JSON, and nccl-tests' JSON."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from collbench.cli.options import STANDARD
from collbench.errors import StorageError, UsageError, writing
from collbench.measure.session import Session
from collbench.results import Measurement


@dataclass
class Outputs:
    """What a command writes, as its options say."""

    plot: bool = True
    quiet: bool = False  # print rows and the run file's path, and no more
    json: Path | None = None
    foreign: Path | None = None  # nccl-tests' JSON
    _texts: list[str] = field(default_factory=list)  # for standard output

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Outputs":
        """Return the outputs that a command's options ask for; a command may have fewer options."""
        words = {"plot": "plot", "quiet": "quiet", "json": "as_json", "foreign": "output_file"}
        return cls(**{name: options[option] for name, option in words.items() if options.get(option) is not None})

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Send all else to standard error where JSON goes to standard output, and print the JSON last."""
        if self.json != STANDARD:
            yield
            return
        with redirect_stdout(sys.stderr):
            yield
        for text in self._texts:
            click.echo(text)

    def write(self, session: Session) -> None:
        """Write the JSON files that the user asked for, of all that has been measured."""
        if not session.leader:
            return
        if self.json:
            from collbench.runfile.flat import document

            text = document(session.header, session.results)
            if self.json == STANDARD:
                self._texts.append(text)
            else:
                _write(self.json, "--json FILE", text)
        if self.foreign:
            write_foreign(session, self.foreign)


def write_foreign(session: Session, path: Path) -> None:
    """Write the JSON of nccl-tests into a file; of several implementations the library's rows."""
    from collbench.algorithms import is_library
    from collbench.formats.exported import ExportSelection
    from collbench.formats.nccl_tests_write import write_json

    results = [result for result in session.results if isinstance(result, Measurement)]
    names = list(dict.fromkeys(result.implementation for result in results))
    chosen = next((name for name in names if is_library(name)), names[0] if names else "")
    selected = tuple(result for result in results if result.implementation == chosen)
    if not selected:
        raise UsageError(f"-J {path}: no row has a time, so there is nothing to write")
    _write(path, "-J FILE", write_json(ExportSelection(session.header, selected)))


def _write(path: Path, option: str, text: str) -> None:
    with writing(path, option, StorageError):
        path.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
