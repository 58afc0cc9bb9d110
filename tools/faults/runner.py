"""Carries out trials, several at a time, and reports those that were not survived."""

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from tests.conftest import of_a_user
from tools.faults import compilers, kills, launched, signals, storage, streams, surroundings
from tools.faults.den import Den
from tools.faults.trial import COLLBENCH, SHORT, Scene, Trial, carried_out
from tools.faults.verdict import complaints

JOBS = len(os.sched_getaffinity(0)) + 2  # some trials mostly wait
SOURCES = (
    compilers,
    launched,
    signals,
    kills,
    storage,
    streams,
    surroundings,
)  # the sources with waiting trials come first


@dataclass(frozen=True)
class Verdict:
    """The outcome of a trial."""

    trial: Trial
    complaints: tuple[str, ...]
    seconds: float

    @property
    def line(self) -> str:
        return f"{self.trial.name}: {'; '.join(self.complaints) or 'survived'}"


class Ground:
    """The place of trials: a folder for all, a den for each thread, and a compile cache that is filled first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self._open = ExitStack()
        self._own = threading.local()

    def carry_out(self, trial: Trial) -> Verdict:
        if not hasattr(self._own, "den"):
            self._own.den = self._open.enter_context(Den())
        place = Path(tempfile.mkdtemp(dir=self.folder, prefix="t"))
        scene = Scene(place, self._own.den)
        begun = time.monotonic()
        try:
            done = carried_out(trial, scene, self.cache)
            found = complaints(trial, scene, done, self.cache)
        except Exception as error:  # an error in a trial must not hide the others
            found = [f"the trial itself failed: {type(error).__name__}: {error}"]
        shutil.rmtree(place, ignore_errors=True)
        return Verdict(trial, tuple(found), time.monotonic() - begun)

    def warm(self) -> None:
        """Compile what trials need, so that they do not wait for the compiler of a slow machine."""
        command = [*COLLBENCH, *SHORT, "--op", "allreduce,broadcast"]
        place = self.folder / "warm"
        place.mkdir()
        surroundings = of_a_user() | {"COLLBENCH_CACHE": str(self.cache), "TMPDIR": str(place)}
        done = subprocess.run(command, cwd=place, env=surroundings, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def close(self) -> None:
        self._open.close()


def every() -> list[Trial]:
    return [trial for source in SOURCES for trial in source.trials()]


@contextmanager
def ground() -> Iterator[Ground]:
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir="/tmp"))
    (folder / "cache").mkdir(mode=0o700)
    made = Ground(folder)
    try:
        made.warm()
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def run(trials: Sequence[Trial], report: Callable[[Verdict], None], jobs: int = JOBS) -> list[Verdict]:
    """Carry out trials; `report` gets each verdict as its trial ends."""
    with ground() as place, ThreadPoolExecutor(jobs) as threads:
        futures = [threads.submit(place.carry_out, trial) for trial in trials]
        verdicts = []
        for future in as_completed(futures):
            verdicts.append(future.result())
            report(verdicts[-1])
    return verdicts


def share(trials: Sequence[Trial], part: int, parts: int) -> list[Trial]:
    """Return one part of the trials, by the hash of their names; all parts together have each trial once."""
    return [trial for trial in trials if crc32(trial.name.encode()) % parts == part % parts]
