"""The runs of a folder, newest first, and the last comparable run."""

import contextlib
import math
import os
import stat
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from collbench.errors import Notice, RunFileError, UsageError
from collbench.host import sanitize
from collbench.results import Result, timed
from collbench.runfile import DEFAULT
from collbench.runfile.schema import Header
from collbench.runfile.store import CUT_OFF, INTERRUPTED, NAME, Run, read, read_header
from collbench.units import printable

_PATTERNS = (NAME, f"*/{NAME}", f"*/*/{NAME}")  # DIR/run.jsonl, DIR/run/run.jsonl, DIR/run/as-is/run.jsonl
_END = 2**12  # bytes at the end of a file that are searched for the last line


@dataclass(frozen=True)
class Entry:
    """A run file of a folder, from its header and its last line."""

    path: Path
    modified: float  # last write, in seconds since 1970
    header: Header = field(default_factory=Header)
    complete: bool = False  # whether its end was written
    status: int = 0  # exit status of its command
    broken: str = ""  # why it cannot be read, or ""

    @property
    def age(self) -> tuple[float, float]:
        """The sort key of runs: start, then end."""
        return started(self.header, self.modified), self.modified

    @property
    def whole(self) -> bool:
        """Whether the run ended, and not by a signal."""
        return self.complete and self.status < INTERRUPTED

    @property
    def platform(self) -> str:
        """The platform of the ranks; `model` of a predicted run."""
        return "model" if self.header.topology.model else self.header.topology.platform

    @property
    def notes(self) -> list[str]:
        """Remarks on the run."""
        if self.broken:
            return ["broken"]
        facts = {
            "predicted": self.platform == "model",
            self.header.imported.tool: True,
            self.header.interleaved.setting: True,
            "resumed": bool(self.header.resumed),
            f"exit status {self.status}": self.status != 0,
            CUT_OFF: not self.whole,
        }
        return [text for text, holds in facts.items() if text and holds]

    def fields(self) -> dict[str, Any]:
        """Return everything known of the run, for JSON."""
        header = self.header
        return {
            "path": shown(self.path),
            "started": header.started,
            "host": header.environment.host,
            "topology": header.topology.name,
            "platform": self.platform,
            "ranks": header.topology.ranks or header.sweep.ranks,
            "collectives": [collective.name for collective in header.sweep.collectives],
            "dtypes": [dtype.name for dtype in header.sweep.dtypes],
            "implementations": list(header.sweep.implementations),
            "tool": header.imported.tool,
            "setting": header.interleaved.setting,
            "complete": self.whole,
            "status": self.status,
            "broken": self.broken,
        }


def list_runs(folder: Path) -> list[Entry]:
    """Return the runs of a folder and two levels below it, newest first; UsageError for a file."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; give the folder that the runs are in")
    paths: list[Path] = []
    for pattern in _PATTERNS:
        paths += folder.glob(pattern)

    # Links last, so that a run is listed under its real folder.
    entries: dict[tuple[int, int], Entry] = {}
    for path in sorted(paths, key=lambda path: (path.parent.is_symlink(), path)):
        try:
            status = path.stat()
        except OSError:
            continue
        identity = status.st_dev, status.st_ino
        if stat.S_ISREG(status.st_mode) and identity not in entries:
            entries[identity] = _entry(path, status.st_mtime)
    return sorted(entries.values(), key=lambda entry: (entry.age, entry.path), reverse=True)


def _entry(path: Path, modified: float) -> Entry:
    try:
        header = read_header(path)

        # Read only the last line: files may be long.
        with sanitize.safe_read(path, RunFileError) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _END))
            last = file.read(_END).splitlines()[-1:]
    except RunFileError as error:
        return Entry(path, modified, broken=str(error).replace(str(path), NAME))
    try:
        end = sanitize.parse_object(last[0]) if last else {}
    except ValueError:  # the last line is longer than an end line, so it is a row
        end = {}
    status = end.get("status")
    return Entry(path, modified, header, end.get("kind") == "end", status if type(status) is int else 0)


def started(header: Header, modified: float) -> float:
    """Return the start of a run in seconds since 1970, or *modified* if unknown."""
    try:
        return datetime.fromisoformat(header.started).timestamp()  # local time without a zone
    except (ValueError, OverflowError, OSError):
        return modified


def shown(path: Path) -> str:
    """Return a path that is safe on a terminal, in full, since people copy it."""
    return printable(os.fsencode(path).decode(errors="replace"))


def last_before(new: Run, folder: Path = DEFAULT) -> Path:
    """Return the run file in *folder* of the newest complete run of the same kind that started before *new*.

    Runs of the same kind share topology name, tool, interleaved setting, and the time of at least one case by the
    same implementation and platform. UsageError if there is none.
    """
    cases = _cases(new.results)
    if not cases:
        raise UsageError(f"{shown(new.path)} has no right result with a time, so there is nothing to compare")

    # A run in memory counts as the newest.
    modified = new.path.stat().st_mtime if new.path.exists() else math.inf
    age = started(new.header, modified), modified
    entries = [entry for entry in list_runs(folder) if not (new.path.exists() and entry.path.samefile(new.path))]
    for entry in entries:
        if not (entry.whole and entry.age < age and _kind(entry.header) == _kind(new.header)):
            continue

        # Of runs with matching headers, take the newest with a common case.
        with warnings.catch_warnings(), contextlib.suppress(RunFileError):
            warnings.simplefilter("ignore", Notice)  # about omitted rows
            if not cases.isdisjoint(_cases(read(entry.path).results)):
                return entry.path
    raise UsageError(
        f"no last run for {shown(new.path)}: none of {len(entries)} other runs in {shown(folder)} is complete, "
        f"started earlier on {new.header.topology.name or 'an unnamed topology'} and has a case in common; give BASE"
    )


def _cases(results: Iterable[Result]) -> set[object]:
    return {(result.case, result.implementation, result.platform) for result in timed(results)}


def _kind(header: Header) -> tuple[str, ...]:
    return header.topology.name, header.imported.tool, header.interleaved.setting
