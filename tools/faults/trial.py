"""A trial: a command, a fault, and the right outcomes; verdict.py has the conditions that hold for all trials."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collbench import exits
from tests.conftest import ROOT, of_a_user
from tools.faults.den import Den

COLLBENCH = (sys.executable, "-m", "collbench")
SWEEP = ("sweep", "--on", "cpu", "-n", "3", "--no-plot", "--out", "out", "--impl", "mpi,two-shot")
SHORT = (*SWEEP, "-b", "64", "-e", "64")
"""A sweep that ends soon."""
LONG = (*SWEEP, "-b", "8", "-e", "4K", "-i", "8", "-T", "5")
"""A sweep of 512 sizes, so that a fault comes before its end."""
GOOD, BAD, USAGE = exits.GOOD, exits.BAD, exits.REFUSED
MARK = "COLLBENCH_TRIAL"
PATIENCE = 40.0  # seconds for any moment that a trial waits for


class Missed(Exception):
    """The moment for the fault never came."""


@dataclass
class Scene:
    """The place of a trial: its folders, and the command once it runs."""

    folder: Path
    den: Den
    environment: dict[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def run(self) -> Path:
        return self.folder / "out" / "run.jsonl"

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

    @property
    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def members(self) -> dict[int, str]:
        """Return every living process of the trial and its command line."""
        wanted = f"{MARK}={self.mark}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return found

    def ranks(self) -> list[int]:
        """Return the processes of ranks in the order of their start."""
        every = self.members().items()
        return sorted(pid for pid, line in every if "measure.worker" in line and "mpiexec" not in line.split()[0])

    def until(self, what: Callable[[], object]) -> None:
        """Wait until a condition holds; Missed if it never does, or the command ends before."""
        deadline = time.monotonic() + PATIENCE
        while not what():
            if time.monotonic() > deadline or self.ended:
                raise Missed
            time.sleep(0.004)

    def rows(self, count: int = 1) -> bool:
        """Return whether the run file has at least `count` results."""
        return self.run.exists() and self.run.read_bytes().count(b'"kind":"measurement"') >= count

    def send(self, number: int, pid: int | None = None) -> None:
        """Send a signal to the command or another process; ignore one that has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid or self.pid, number)


def nothing(scene: Scene) -> None:
    """Do nothing, as the fault or the preparation of a trial."""


def _no_complaint(scene: Scene, done: "Done") -> str:
    return ""


@dataclass(frozen=True)
class Done:
    """The end of the command; status -1 if it never ended."""

    status: int
    output: str
    errors: str
    seconds: float
    missed: bool = False  # the moment for the fault never came


@dataclass(frozen=True)
class Trial:
    """One fault and its right outcomes."""

    name: str
    arguments: Sequence[str]
    allowed: Sequence[int]
    fault: Callable[[Scene], None] = nothing
    prepare: Callable[[Scene], None] = nothing
    variables: Mapping[str, str | None] = field(default_factory=dict)
    shell: str = ""  # replaces `"$@"`, which is the command: with redirections and the like
    launcher: Sequence[str] = ()  # in front of the command
    limit: float = 45.0  # seconds until it has ended
    check: Callable[[Scene, Done], str] = _no_complaint  # returns a complaint
    killed: bool = False  # whether SIGKILL ends the command itself: it cannot clean up, its ranks do a little later
    lines: int = 1  # of error messages, at most
    unforeseen: bool = False  # whether there may be a file with a traceback
    early: bool = False  # whether Python itself may still be starting, and print anything
    speaks: bool = False  # whether the launcher prints messages of its own

    def command(self) -> list[str]:
        command = [*self.launcher, *COLLBENCH, *self.arguments]
        return ["/bin/sh", "-c", self.shell, "sh", *command] if self.shell else command


def environment(trial: Trial, scene: Scene, cache: Path) -> dict[str, str]:
    """Return the variables of a user, with folders that belong to the trial."""
    own = {MARK: scene.mark, "TMPDIR": str(scene.folder / "tmp"), "HOME": str(scene.folder / "home")}
    given = of_a_user() | own | {"COLLBENCH_CACHE": str(cache), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    given.pop("XDG_CACHE_HOME", None)
    given["MPLCONFIGDIR"] = str(cache / "matplotlib")
    changed = {
        **given,
        **{name: value.replace("@", str(scene.folder)) if value else value for name, value in trial.variables.items()},
    }
    return {name: value for name, value in changed.items() if value is not None}


def carried_out(trial: Trial, scene: Scene, cache: Path) -> Done:
    """Start the command, carry out the fault, and wait for the end."""
    for name in ("tmp", "home"):
        (scene.folder / name).mkdir(parents=True)
    scene.environment = environment(trial, scene, cache)
    trial.prepare(scene)
    begun = time.monotonic()
    with (scene.folder / "stdout").open("wb") as output, (scene.folder / "stderr").open("wb") as errors:
        scene.process = subprocess.Popen(
            scene.den.inside(trial.command(), scene.folder),
            cwd=scene.folder,
            env=scene.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            trial.fault(scene)
            missed = False
        except Missed:
            missed = True
        status = _ended(scene.process, trial.limit - (time.monotonic() - begun))
    told = [(scene.folder / name).read_bytes().decode(errors="replace") for name in ("stdout", "stderr")]
    return Done(status, told[0], told[1], time.monotonic() - begun, missed)


def _ended(process: "subprocess.Popen[bytes]", seconds: float) -> int:
    """Return the exit status as a shell counts it."""
    try:
        status = process.wait(max(0.1, seconds))
    except subprocess.TimeoutExpired:
        return -1
    return 128 - status if status < 0 else status


SIGNALS = {"INT": (signal.SIGINT, 130), "TERM": (signal.SIGTERM, 143), "HUP": (signal.SIGHUP, 129)}
