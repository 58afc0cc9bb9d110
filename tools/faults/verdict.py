"""The conditions that hold after every trial."""

import re
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from collbench.errors import CollbenchError
from collbench.runfile.store import TornLine, read
from tools.faults.trial import Done, Scene, Trial

HOSTILE = "bad"  # the folder of files that are broken on purpose
TRACEBACK = "collbench-traceback-*.txt"  # of an unforeseen error
_GONE = 4.0  # seconds until the last process has ended
_GONE_KILLED = 12.0  # the same where ranks must first notice that the command is gone
_LOOKS = 3  # consecutive looks that must find no process
_RAW = re.compile(r"Traceback \(most recent|Fatal Python error|Exception ignored|Abort\(\d+\)|core dumped")
_LINE = re.compile(r"collbench: error: ")
_CACHED = re.compile(r".*\.(so|lock|db|sqlite|sqlite-wal|sqlite-shm|json)$|(kernels|matplotlib|runs|index)$")


def complaints(trial: Trial, scene: Scene, done: Done, cache: Path) -> list[str]:
    """Return all violated conditions, and end all processes that are left."""
    left = _left(scene, _GONE_KILLED if trial.killed else _GONE)
    return [
        *left,
        *_said(trial, done),
        *_files(trial, scene),
        *filter(None, [trial.check(scene, done)]),
        *_cache(trial, cache),
    ]


def _said(trial: Trial, done: Done) -> Iterator[str]:
    if done.missed:
        yield f"the fault was not made, since its moment never came: {_tail(done)}"
    if done.status not in trial.allowed:
        allowed = " or ".join(map(str, trial.allowed))
        ended = f"status {done.status}, not {allowed}: {_tail(done)}"
        yield ended if done.status >= 0 else f"did not end within {trial.limit:g} s"
    said = "" if trial.early else done.output + done.errors
    if (found := _RAW.search(said)) and not trial.speaks:
        yield f"printed {found[0]!r}: {_tail(done)}"
    if "Traceback" in said:
        yield f"a traceback: {_tail(done)}"
    if len(_LINE.findall(said)) > trial.lines:
        yield f"too many lines of error: {_tail(done)}"


def _tail(done: Done) -> str:
    return " | ".join(done.errors.strip().splitlines()[-4:])[-600:]


def _left(scene: Scene, seconds: float) -> Iterator[str]:
    deadline = time.monotonic() + seconds
    members: dict[int, str] = {}
    empty = 0  # consecutive looks; a process that starts another program shows no environment for a moment
    while empty < _LOOKS and time.monotonic() < deadline:
        members = scene.members()
        empty = 0 if members else empty + 1
        time.sleep(0.02)
    for pid, line in members.items():
        yield f"process {pid} is left: {line[:100]}"
        scene.send(signal.SIGKILL, pid)
    if members and scene.process:
        scene.process.wait(5)


def _files(trial: Trial, scene: Scene) -> Iterator[str]:
    if names := scene.den.left():
        yield f"left in /dev/shm: {', '.join(names)}"
        scene.den.sweep()
    temporary = scene.folder / "tmp"
    for path in sorted(temporary.iterdir()) if temporary.is_dir() else []:
        if not (trial.unforeseen and path.match(TRACEBACK)):
            yield f"left in TMPDIR: {path.name}{_words(path)}"
    for path in sorted(scene.den.path(scene.folder).glob("**/run.jsonl")):
        if path.parent.name != HOSTILE:
            yield from _run_file(path, torn=trial.killed)


def _run_file(path: Path, torn: bool) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if torn else "error", TornLine)
            if path.stat().st_size or not torn:
                read(path)
    except (CollbenchError, TornLine) as error:
        yield f"the run file is not whole: {error}"


def _words(path: Path) -> str:
    """Return the end of a traceback's file."""
    return ": " + " | ".join(path.read_text().strip().splitlines()[-12:]) if path.match(TRACEBACK) else ""


def _cache(trial: Trial, cache: Path) -> Iterator[str]:
    for path in sorted((*cache.iterdir(), *cache.glob("kernels/*"))):
        if not _CACHED.match(path.name):
            yield f"left in the cache: {path.name}"
            if path.is_file():
                path.unlink()
