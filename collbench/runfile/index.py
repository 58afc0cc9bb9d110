"""What was read of the run files of a folder, kept in the user's cache folder so that none is read twice.

An index costs nobody an error: a damaged one is removed, and where none can be opened or written the files are read.
"""

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from collbench import __version__
from collbench.errors import PlatformError
from collbench.host.cache import cache_folder, private_folder
from collbench.runfile.file import FORMAT
from collbench.runfile.scan_folder import Facts, Medians, Scan

SCHEMA = 3
VERSION = zlib.crc32(f"{SCHEMA} {FORMAT} {__version__}".encode())
"""Another release may read files differently, so it has an index of its own."""

_TABLE = """CREATE TABLE IF NOT EXISTS runs
(name BLOB PRIMARY KEY, size INTEGER, modified INTEGER, changed INTEGER, facts TEXT, medians TEXT)"""
_UNUSABLE = (OSError, RuntimeError, PlatformError, sqlite3.OperationalError)  # also locked; RuntimeError: no home


class Stamp(NamedTuple):
    """By which a file is known not to have changed; the last change of its mode or name counts too."""

    size: int
    modified: int  # nanoseconds since 1970
    changed: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Stamp":
        """From what the file system says."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Index:
    """The index of one folder, by the path of a run file within it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def path(self) -> Path:
        """Where it is kept; RuntimeError where there is no home directory."""
        key = hashlib.sha256(os.fsencode(self._folder.resolve())).hexdigest()[:16]
        return cache_folder() / "history" / f"{key}-{VERSION:08x}.sqlite"

    def load(self) -> dict[str, tuple[Stamp, Facts]]:
        """All that it knows; nothing where there is no good index."""
        rows = self._rows("SELECT name, size, modified, changed, facts FROM runs")
        try:
            return {os.fsdecode(name): (Stamp(*stamp), to_facts(facts)) for name, *stamp, facts in rows}
        except (ValueError, TypeError):
            self._remove()
            return {}

    def medians(self) -> dict[str, str]:
        """The medians of all files as text for `to_medians`, which takes long and is seldom needed of all."""
        return {os.fsdecode(name): text for name, text in self._rows("SELECT name, medians FROM runs")}

    def save(self, fresh: Mapping[str, tuple[Stamp, Scan]], gone: Iterable[str]) -> None:
        """Add what was read and drop what is gone."""
        rows = [
            (os.fsencode(name), *stamp, json.dumps(list(vars(scan.facts).values())), json.dumps(scan.medians))
            for name, (stamp, scan) in fresh.items()
        ]
        try:
            with closing(self._open()) as connection, connection:
                connection.executemany("DELETE FROM runs WHERE name = ?", [(os.fsencode(name),) for name in gone])
                connection.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?)", rows)
        except _UNUSABLE:
            return
        except sqlite3.Error:
            self._remove()

    def _rows(self, query: str) -> list[Any]:
        try:
            with closing(self._open()) as connection:
                return connection.execute(query).fetchall()
        except _UNUSABLE:
            return []
        except sqlite3.Error:
            self._remove()
            return []

    def _open(self) -> sqlite3.Connection:
        own = private_folder("history", PlatformError) / self.path.name
        if own.is_symlink():
            own.unlink()  # from when others could write there
        connection = sqlite3.connect(own, timeout=1)
        with suppress(sqlite3.Error):  # whoever asks next is told
            connection.execute(_TABLE)
        return connection

    def _remove(self) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def to_facts(text: str) -> Facts:
    """As they were saved; ValueError or TypeError where they were not."""
    values: list[Any] = [tuple(value) if isinstance(value, list) else value for value in json.loads(text)]
    return Facts(*values)


def to_medians(text: str) -> Medians:
    """The same."""
    curves = json.loads(text)
    return {curve: {int(size): seconds for size, seconds in own.items()} for curve, own in curves.items()}
