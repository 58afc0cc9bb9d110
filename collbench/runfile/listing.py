"""The runs of a folder, newest first: found anew each time, read only where they changed, and filtered."""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from collbench.errors import UsageError
from collbench.runfile.file import NAME
from collbench.runfile.index import Index, Stamp, to_medians
from collbench.runfile.scan_folder import Facts, Medians, Scan, scan
from collbench.runfile.tags import FILE, tags

DEPTH = 2  # folders above a run file that are looked into: DIR/run/run.jsonl, DIR/run/as-is/run.jsonl

Progress = Callable[[int, int], None]
"""Told how many of how many files are read."""


@dataclass(frozen=True)
class Entry:
    """One run of a folder, whether it can be read or not."""

    name: str  # path of the run file within the folder
    path: Path  # the same from here
    when: float  # seconds since 1970 at which it started
    modified: float  # and at which the file was last written
    facts: Facts
    tags: tuple[str, ...] = ()

    @property
    def age(self) -> tuple[float, float]:
        """By which runs are ordered: when they started, then when they ended."""
        return self.when, self.modified

    def fields(self) -> dict[str, Any]:
        """Everything known of it, for JSON."""
        return {"path": str(self.path), **asdict(self.facts), "tags": list(self.tags)}


class History:
    """All runs of a folder, newest first, in `entries`; `reads` files were read, since the index did not know them."""

    def __init__(self, folder: Path, progress: Progress = lambda done, total: None) -> None:
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file; give the folder that the runs are in")
        self.folder = folder
        self.reads = 0
        self._index = Index(folder)
        files = {file.name: file for file in _run_files(folder)}
        facts = self._read(files, progress)
        entries = (self._entry(file, facts[file.name]) for file in files.values())
        self.entries = sorted(entries, key=lambda entry: (entry.age, entry.name), reverse=True)

    def medians(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, Medians]]:
        """The medians of each of these entries in turn; a file that the index does not know is read."""
        indexed = self._index.medians()
        for entry in entries:
            try:
                yield entry, to_medians(indexed[entry.name])
            except (KeyError, ValueError, TypeError, AttributeError):
                yield entry, scan(entry.path).medians

    def _read(self, files: Mapping[str, "RunFile"], progress: Progress) -> dict[str, Facts]:
        """The facts of each file; what is read is kept even if reading is interrupted."""
        indexed = self._index.load()
        facts = {name: indexed[name][1] for name, file in files.items() if indexed.get(name, (None,))[0] == file.stamp}
        missing = [name for name in files if name not in facts]
        fresh: dict[str, tuple[Stamp, Scan]] = {}
        try:
            for done, name in enumerate(missing):
                progress(done, len(missing))
                fresh[name] = files[name].stamp, scan(Path(self.folder, name))
        finally:
            self.reads = len(fresh)
            lasting = {name: (stamp, read) for name, (stamp, read) in fresh.items() if read.lasting}
            gone = indexed.keys() - files.keys()
            if lasting or gone:
                self._index.save(lasting, gone)
        return facts | {name: read.facts for name, (_, read) in fresh.items()}

    def _entry(self, file: "RunFile", facts: Facts) -> Entry:
        path = Path(self.folder, file.name)
        modified = file.stamp.modified / 1e9
        return Entry(file.name, path, facts.when(modified), modified, facts, tags(path.parent) if file.tagged else ())


class RunFile(NamedTuple):
    """A run file in the folder."""

    name: str
    stamp: Stamp
    tagged: bool  # whether there is a file of tags beside it


def _run_files(folder: Path) -> Iterator[RunFile]:
    """Every run file once, though links may lead to it too."""
    seen = set()
    for name, status, tagged in _walk(str(folder), "", DEPTH):
        identity = status.st_dev, status.st_ino
        if stat.S_ISREG(status.st_mode) and identity not in seen:
            seen.add(identity)
            yield RunFile(name, Stamp.of(status), tagged)


def _walk(folder: str, within: str, depth: int) -> Iterator[tuple[str, os.stat_result, bool]]:
    """Folders that cannot be looked into, or go away meanwhile, hold nothing."""
    try:
        with os.scandir(folder) as listed:
            inside = sorted(listed, key=lambda entry: (entry.is_symlink(), entry.name))
        own = {entry.name: entry for entry in inside if entry.name in (NAME, FILE)}
        if NAME in own:
            yield within + NAME, own[NAME].stat(), FILE in own
    except OSError:
        return
    for entry in inside if depth else ():
        if _is_folder(entry):
            yield from _walk(entry.path, f"{within}{entry.name}/", depth - 1)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


@dataclass(frozen=True)
class Filter:
    """Which runs to list; what is None or empty lets all pass."""

    host: str = ""  # its name, the part of it before the first dot, or a shell's pattern of either
    collectives: tuple[str, ...] = ()  # any of these
    platform: str = ""
    topology: str = ""  # part of its name, in any case
    since: float | None = None
    until: float | None = None
    tag: str = ""

    def __call__(self, entry: Entry) -> bool:
        """Whether a run passes."""
        facts = entry.facts
        return all(
            (
                not self.host or _named(facts.host, self.host),
                not self.collectives or not set(self.collectives).isdisjoint(facts.collectives),
                not self.platform or self.platform in facts.platforms,
                self.topology.casefold() in facts.topology.casefold(),
                self.since is None or entry.when >= self.since,
                self.until is None or entry.when <= self.until,
                not self.tag or self.tag in entry.tags,
            )
        )


def _named(host: str, pattern: str) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for name in (host, host.partition(".")[0]))


_AGO = re.compile(r"(\d{1,5})([hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def first_second(text: str, option: str = "--since") -> float:
    """The first moment that counts: `7d` is seven days ago, a date its midnight; UsageError for other words."""
    try:
        if ago := _AGO.fullmatch(text):
            return (datetime.now() - int(ago[1]) * _UNITS[ago[2]]).timestamp()
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{option} {text!r} is no time; write 2026-11-01, 2026-11-01T12:00, 12h, 7d or 2w (ago)"
        ) from None


def last_second(text: str) -> float:
    """The last moment that counts: of a date without a time, the end of that day."""
    if not _DAY.fullmatch(text):
        return first_second(text, "--until")
    first_second(text, "--until")
    return (datetime.fromisoformat(text) + timedelta(days=1)).timestamp() - 1e-6
