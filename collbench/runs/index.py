"""What was read of the run files of a folder, kept in the user's cache folder so that none is read twice.

An index is one SQLite file that nobody ever changes: a new one is made beside it and takes its place.  So readers need
no lock, on any file system; two processes at once cost at most one of them its additions, which the next one reads
again; and an index that is damaged, or another version's, is as good as none.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from collbench import __version__
from collbench.cache import cache_folder
from collbench.runs.file import FORMAT
from collbench.runs.scan_folder import Facts, Medians, Scan

SCHEMA = 1
VERSION = zlib.crc32(f"{SCHEMA} {FORMAT} {__version__}".encode()) & 0x7FFFFFFF
"""Another release may read files differently, and reads them again."""

_DAMAGED = (sqlite3.Error, zlib.error, ValueError, TypeError, OverflowError)


class Stamp(NamedTuple):
    """By which a file is known not to have changed; the last change of its mode or name counts too."""

    size: int
    modified: int  # nanoseconds since 1970
    changed: int

    @classmethod
    def of(cls, found: os.stat_result) -> "Stamp":
        """From what the file system says."""
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Index:
    """The index of one folder; `note` says why there is none, where it could not be written."""

    def __init__(self, folder: Path) -> None:
        self.note = ""
        key = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
        try:
            self.path = cache_folder().absolute() / "history" / f"{key}.sqlite"
        except RuntimeError:  # there is no home directory
            self.path = Path(os.devnull, "none")

    def load(self) -> dict[str, tuple[Stamp, Facts]]:
        """By the path of a run file within the folder; nothing where there is no good index."""
        found = {}
        try:
            with closing(self._open()) as connection:
                for name, *stamp, facts in connection.execute("SELECT name, size, modified, changed, facts FROM runs"):
                    found[os.fsdecode(name)] = Stamp(*stamp), _to_facts(facts)
        except _DAMAGED:
            return {}
        return found

    def medians(self, names: Iterable[str]) -> Iterator[Medians | None]:
        """Of each file in turn; None where the index does not know it."""
        with contextlib.ExitStack() as stack:
            try:
                connection = stack.enter_context(closing(self._open()))
            except _DAMAGED:
                connection = None
            for name in names:
                yield self._medians(connection, name) if connection else None

    def save(self, fresh: Mapping[str, tuple[Stamp, Scan]], gone: Iterable[str], keep: bool) -> None:
        """Add what was read and drop what is gone; `keep` what the index held, if that was good."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._replace(fresh, gone, keep)
            except _DAMAGED:  # in a part that nobody read; what is lost is read again next time
                self._replace(fresh, gone, keep=False)
        except (OSError, *_DAMAGED) as error:
            reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
            self.note = f"no index can be kept in {self.path.parent} ({reason})"

    def _replace(self, fresh: Mapping[str, tuple[Stamp, Scan]], gone: Iterable[str], keep: bool) -> None:
        with tempfile.TemporaryDirectory(dir=self.path.parent) as scratch:
            made = Path(scratch, "index")
            if keep:
                shutil.copyfile(self.path, made)
            _write(made, fresh, gone)
            made.replace(self.path)

    def _medians(self, connection: sqlite3.Connection, name: str) -> Medians | None:
        try:
            row = connection.execute("SELECT medians FROM runs WHERE name = ?", (os.fsencode(name),)).fetchone()
            curves = _unpacked(row[0]) if row else None
            return curves and {curve: {int(size): each for size, each in own.items()} for curve, own in curves.items()}
        except _DAMAGED:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)  # so that the next list makes another
            return None

    def _open(self) -> sqlite3.Connection:
        """The index for reading; sqlite3.Error if there is none of this version."""
        connection = sqlite3.connect(f"{self.path.as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                raise sqlite3.DatabaseError("another version's")
        except BaseException:
            connection.close()
            raise
        return connection


def _write(path: Path, fresh: Mapping[str, tuple[Stamp, Scan]], gone: Iterable[str]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = OFF")  # nobody else has it, and a torn one never takes its place
        connection.execute("PRAGMA synchronous = OFF")
        if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:  # replaced meanwhile by another release
            connection.execute("DROP TABLE IF EXISTS runs")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS runs "
            "(name BLOB PRIMARY KEY, size INTEGER, modified INTEGER, changed INTEGER, facts BLOB, medians BLOB)"
        )
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.executemany("DELETE FROM runs WHERE name = ?", ((os.fsencode(name),) for name in gone))
        connection.executemany(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?)",
            (
                (os.fsencode(name), *stamp, _packed(list(vars(each.facts).values())), _packed(each.medians))
                for name, (stamp, each) in fresh.items()
            ),
        )


def _packed(value: Any) -> bytes:
    """Compressed, less for its size than for the checksum: SQLite has none."""
    return zlib.compress(json.dumps(value).encode(), 1)


def _unpacked(packed: bytes) -> Any:
    return json.loads(zlib.decompress(packed))


def _to_facts(packed: bytes) -> Facts:
    values: list[Any] = [tuple(each) if isinstance(each, list) else each for each in _unpacked(packed)]
    return Facts(*values)
