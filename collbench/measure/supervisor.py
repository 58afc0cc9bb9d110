"""The supervisor: starts ranks, sends them cases, and replaces ranks that hang.

A rank that dies, hangs or wedges its device causes one `failed` row; fresh ranks continue.
The supervisor itself never touches MPI or CUDA, so nothing can wedge it.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Self

from collbench.algorithms import is_library
from collbench.cases import Case, Sampling, Sweep
from collbench.errors import PlatformError, RanksLost, SourceError, StartFailed, TimedOut, notify
from collbench.host import processes, signals
from collbench.host.files import new_file
from collbench.host.isolation import isolated
from collbench.host.launcher import unlaunched
from collbench.measure import protocol
from collbench.measure.launcher_watchdog import no_progress
from collbench.measure.protocol import Tell, WorkerHello, tell_nobody
from collbench.platforms import find_platform
from collbench.platforms.cpu.mpi_libraries import Library, own
from collbench.records import convert
from collbench.results import Result
from collbench.results.collectives import Failed, Skipped
from collbench.runfile.schema import Changes, changed, sweep_fields, to_result
from collbench.topology.discover_cpu import free
from collbench.topology.discovered import small_shared_memory
from collbench.units import format_size

SCRATCH = "scratch"  # temporary files, within the run's folder
LOCAL_ONLY = {
    "UCX_TLS": "self,sm",
    "FI_TCP_IFACE": "lo",
    "OMPI_MCA_btl": "^tcp",
    "OMPI_MCA_oob_tcp_if_include": "lo",
    "PMIX_MCA_ptl_tcp_if_include": "lo",
}
"""Variables that keep ranks of one machine off the network; by default MPI libraries listen on every address.

The user's settings of the same library stay. Processes without MPI get none, because NCCL's plugins read some.
"""

# MPICH's gforker prints a line for each rank; it ended all but the first itself.
_FIRST_ENDED = re.compile(r"^\[\d+\](\d+):.*signaled with (?!Interrupt|Terminated)", re.MULTILINE)
_EXIT_BY_SIGNAL = re.compile(
    r"EXIT STRING: .+? \(signal (\d+)\)|^\[\d+\]\d+:Return code = \d+, signaled with (.+)$", re.MULTILINE
)
_TO_THE_OTHERS = (signal.SIGINT, signal.SIGQUIT)  # sent by a launcher to the remaining ranks
_WITHOUT_ROOM = (signal.SIGBUS, signal.SIGSEGV)  # how MPICH ends if /dev/shm is full

_STOPPING = 5.0  # seconds for ranks to end on their own
_DYING = 10.0  # seconds for a killed process to end, unless it hangs in a driver
_LOOK = 0.2  # seconds between two checks of silent ranks
_SLOWEST = 50e6  # bytes per second: the lowest rate for filling, checking and moving buffers
_LAST = {
    StartFailed.__name__: (2, "its library did not start, 2 times: tried no more"),
    TimedOut.__name__: (2, "timed out twice ({where}), tried no more: {why}"),
    SourceError.__name__: (1, "its kernel could not be compiled: tried no more"),
}
"""By kind of loss, the number after which an implementation is given up, and the reason shown."""


def rank_command(platform: str, ranks: int, library: Library | None = None) -> list[str]:
    """Return the command that starts ranks; on a CPU by the launcher of *library*, or of the one mpi4py loads."""
    # -P: do not import a copy of collbench from the working folder.
    python = [sys.executable, "-P", "-m", protocol.WORKER]
    return [*(library or own()).command(ranks), *python] if find_platform(platform).process_per_rank else python


def rank_environment(platform: str, folder: Path, changes: Changes, library: Library | None = None) -> dict[str, str]:
    """Return the environment of ranks, which names their supervisor and the MPI library to load."""
    environment = unlaunched(os.environ)
    by_mpi = find_platform(platform).process_per_rank
    if by_mpi:
        # Keep the user's network settings of each library, by prefix (`UCX`, `FI`).
        networks = [name for name in environment if re.match(r"UCX_(TLS|NET_DEVICES)$|FI_(PROVIDER|TCP)", name)]
        chosen = {name.partition("_")[0] for name in networks}
        for name, value in LOCAL_ONLY.items():
            if name.partition("_")[0] not in chosen:
                environment.setdefault(name, value)
    environment = changed(environment | {"OMP_NUM_THREADS": "1"}, changes)
    if by_mpi:
        environment = (library or own()).environment(environment)
    environment = isolated(environment)
    others = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    return environment | {
        protocol.FOLDER: str(folder),
        protocol.SUPERVISOR: str(os.getpid()),
        protocol.PLATFORM: platform,
        "TMPDIR": str(folder / SCRATCH),  # so that leftovers of a killed compiler or MPI are removed
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *others]),
    }


def signal_of(printed: str) -> int | None:
    """Return the signal that ended a rank, as the launcher printed it; None if it names none."""
    by_name = {signal.strsignal(number): int(number) for number in signal.valid_signals()}
    numbers = [int(number or by_name.get(name.strip(), 0)) for number, name in _EXIT_BY_SIGNAL.findall(printed)]

    # The launcher ends the other ranks after the first one.
    first = [number for number in numbers if number not in _TO_THE_OTHERS]
    return next(iter(first or numbers), None)


def seconds_for(case: Case, sampling: Sampling) -> float:
    """Return the seconds without progress after which a case fails: the time-out plus time for its bytes."""
    return sampling.timeout + case.nbytes * case.ranks / _SLOWEST


def _new_log(folder: Path, name: str) -> Path:
    """Create a new file for the output of a set of ranks: `NAME.log`, `NAME-2.log` and so on."""
    for number in count(1):
        path = folder / (f"{name}-{number}.log" if number > 1 else f"{name}.log")
        with contextlib.suppress(FileExistsError):
            os.close(new_file(path))
            break
    return path


def _name(case: Case) -> str:
    properties = (each.title(value) for each, value in case.unusual)
    return " ".join((case.collective.name, "of", format_size(case.nbytes), *properties))


class WorkersLost(Exception):
    """The workers were lost in the middle of a case, for the given reason."""

    def __init__(self, case: Case, reason: str, implementation: str = "", error: str = "") -> None:
        super().__init__(reason)
        self.case, self.reason = case, reason
        self.implementation = implementation  # that was running
        self.error = error  # the class of the ranks' exception; TimedOut if they hang
        self.rank: int | None = None  # rank of the first process to end, where the launcher reports it


class Workers:
    """One set of rank processes: starting, communicating, and ending."""

    def __init__(
        self, platform: str, sweep: Sweep, changes: Changes, library: Library | None, folder: Path | None
    ) -> None:
        self._sweep, self._numbers = sweep, {case: number for number, case in enumerate(sweep.cases())}
        self._startup = find_platform(platform).startup
        self._channel: protocol.Channel | None = None
        self._files: list[str] = []
        self._pids: tuple[int, ...] = ()
        self._seen = 0, 0.0  # the ranks' last beat, and the time of the last beat or message
        command = rank_command(platform, sweep.ranks, library)
        with ExitStack() as undo:
            try:
                # A second earlier, since file times have the resolution of the kernel's tick.
                self._begun = time.time() - 1.0
                self._folder = Path(tempfile.mkdtemp(prefix="collbench-"))
                undo.callback(shutil.rmtree, self._folder, ignore_errors=True)
                (self._folder / SCRATCH).mkdir()
                environment = rank_environment(platform, self._folder, changes, library)

                # Library output that the user requested is kept in the run's folder.
                self._log, self.messages = self._folder / "log", ""
                debug = find_platform(platform).debug
                if environment.get(debug):
                    self.messages = environment.get(f"{debug}_FILE", "")
                    if folder and not self.messages:
                        self._log = _new_log(folder, debug.lower().replace("_", "-"))
                        self.messages = str(self._log)
                self._heartbeat = protocol.Heartbeat(self._folder)
                self._server = undo.enter_context(protocol.listen(self._folder))
                with self._log.open("wb") as log:
                    self._process = subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env=environment,
                        start_new_session=True,  # Ctrl-C is for the supervisor, which ends the ranks in order
                    )
            except OSError as error:
                raise PlatformError(
                    f"the ranks did not start: {error}; they need a folder for temporary files "
                    "with some room: set TMPDIR to one"
                ) from None
            undo.pop_all()

    def greet(self, named: Sequence[str], cores: Sequence[int]) -> WorkerHello:
        """Wait for the ranks' hello to the sweep; PlatformError with their reason if they cannot start."""
        # One deadline for everything; compiling kernels takes the most.
        deadline = time.monotonic() + self._startup
        self._channel = self._accept(deadline)
        try:
            self._channel.send({"sweep": sweep_fields(self._sweep), "named": list(named), "cores": list(cores)})
            hello = self._channel.receive(max(0.0, deadline - time.monotonic()))
        except protocol.Closed:
            raise PlatformError(f"the ranks did not start: {self._last_words()}") from None
        if hello is None:
            raise PlatformError(f"the ranks were not ready within {self._startup:g} s{self._printed()}")
        self._files = hello["files"]
        if "refused" in hello:
            raise PlatformError(hello["refused"])
        self._pids = tuple(hello["pids"])
        return replace(convert(hello, WorkerHello), cores=tuple(cores))

    def _accept(self, deadline: float) -> protocol.Channel:
        self._server.settimeout(0.05)
        while True:
            signals.check()
            with contextlib.suppress(TimeoutError):
                return protocol.Channel(self._server.accept()[0])
            if self._process.poll() is not None:
                raise PlatformError(f"the ranks did not start: {self._last_words()}")
            if time.monotonic() > deadline:
                raise PlatformError(f"the ranks did not start within {self._startup:g} s{self._printed()}")

    def measure(
        self, case: Case, names: Sequence[str], sampling: Sampling, launches: Mapping[str, int], tell: Tell
    ) -> Iterator[Result]:
        """Yield results as they come, and report progress; WorkersLost if the ranks die, hang or give up."""
        assert self._channel
        order = {"case": self._numbers[case], "implementations": names, "sampling": sampling, "launches": launches}

        # Resumed work differs from the sweep's.
        order["work"] = case.work if case.work and case.work.resumable else None
        try:
            self._channel.send(order)
            self._seen = self._heartbeat.read()[0], time.monotonic()
            while True:
                message = self._channel.receive(_LOOK)
                if message is None:
                    self._look_for_progress(case, tell)
                    continue
                if "done" in message:
                    return
                if "result" not in message:
                    reason = str(message.get("failed") or message["refused"])
                    raise WorkersLost(case, reason, self._heartbeat.read()[1], message.get("error", ""))
                if result := to_result(message["result"]):
                    yield result
                self._seen = self._heartbeat.read()[0], time.monotonic()
        except protocol.Closed:
            loss = WorkersLost(case, self._last_words(), self._heartbeat.read()[1])
            loss.rank = self._killed()
            raise loss from None

    def _look_for_progress(self, case: Case, tell: Tell) -> None:
        """Report what silent ranks are doing; WorkersLost if they make no progress, Closed if they ended."""
        if self._process.poll() is not None:
            raise protocol.Closed
        timeout = seconds_for(case, self._sweep.sampling)
        beats, name, phase = self._heartbeat.read()
        if phase:
            tell(f"{name}: {phase}" if name else phase)

        # Ranks are silent while sampling; the heartbeat distinguishes slow ranks from hanging ones.
        before, since = self._seen
        if beats != before:
            self._seen = beats, time.monotonic()
        elif time.monotonic() - since > timeout:
            stuck = [rank for rank, process in enumerate(self._pids) if processes.is_stuck(process)]
            who = f"rank {', '.join(map(str, stuck))} is stopped or waits for a device" if stuck else ""
            reasons = no_progress(timeout, phase), who, protocol.ask(self._server)
            loss = WorkersLost(case, "; ".join(filter(None, reasons)), name, TimedOut.__name__)
            loss.rank = stuck[0] if len(stuck) == 1 else None
            raise loss

    def _killed(self) -> int | None:
        printed = self._log.read_text(encoding="utf-8", errors="replace")
        if first := _FIRST_ENDED.search(printed):
            return int(first[1])
        ranks = enumerate(self._pids)
        return next((rank for rank, process in ranks if re.search(rf"\bPID {process}\b", printed)), None)

    def _last_words(self) -> str:
        """Return why the ranks ended, from what they and the launcher printed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)  # the launcher reports a rank's end after all ranks have ended
        printed = self._log.read_text(encoding="utf-8", errors="replace")
        if killed := signal_of(printed):
            which = "a rank" if (rank := self._killed()) is None else f"rank {rank}"
            reasons = [f"{which} was ended by signal {killed} ({signal.strsignal(killed)})"]
            if killed in _WITHOUT_ROOM:
                reasons.append(small_shared_memory(free(Path("/dev/shm"))))
            return "; ".join(filter(None, reasons))
        errors = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception|Exit)\b.*)$", printed, re.MULTILINE)
        last = f": {errors[-1]}" if errors else self._printed()
        return f"a rank ended with status {self._process.returncode}{last}"

    def _printed(self) -> str:
        """Return the last line with letters that the ranks and the launcher printed, or ""."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((f": {line.strip()}" for line in reversed(lines) if any(map(str.isalpha, line))), "")

    def stop(self) -> None:
        """Tell the ranks to end, and wait until they have cleaned up, unless a signal is pending."""
        assert self._channel

        # Do not wait for the launcher: MPICH's gforker spins for a second or more if two ranks end at once.
        with contextlib.suppress(protocol.Closed):
            self._channel.send({"stop": True})
            deadline = time.monotonic() + _STOPPING
            while any(map(processes.is_alive, self._pids)) and time.monotonic() < deadline and not signals.pending():
                time.sleep(0.02)

        # Ranks that ended normally have removed their names, which others may now use.
        if not any(map(processes.is_alive, self._pids)):
            self._files = []

    def kill(self) -> None:
        """Kill every process, and remove what they leave behind."""
        processes.end_marked(protocol.FOLDER, str(self._folder), self._files)

        # Ranks that have greeted have unlinked their shared memory.
        if self._channel is None:
            processes.unlink_orphans(self._begun)
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()  # if /proc does not show it
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DYING)
        if self._channel:
            self._channel.close()
        self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

        # Keep a log in the run's folder, unless it is empty.
        with contextlib.suppress(OSError):
            if not self._log.stat().st_size:
                self._log.unlink()


@dataclass
class Supervisor:
    """One set of ranks, restarted as needed; a context manager that leaves none behind.

    `changes` apply to the ranks' environment; their hello also reports the `named` variables. On a CPU they load the
    MPI `library`, or the one that mpi4py finds. Library output that the user requested (NCCL_DEBUG) goes to a file in
    the run's `folder`.
    """

    platform: str
    sweep: Sweep
    changes: Changes = field(default_factory=dict)
    named: tuple[str, ...] = ()
    library: Library | None = None
    folder: Path | None = None
    greeting = WorkerHello()
    tell: Tell = tell_nobody
    _workers: Workers | None = None
    _losses: list[WorkersLost] = field(default_factory=list)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # Signals from now on end the run.
            stack.enter_context(signals.deferred())
            self.greeting = self._start()
            self._open = stack.pop_all()
        return self

    def _start(self) -> WorkerHello:
        """Start fresh ranks and return their hello; PlatformError, and no ranks, if they cannot start."""
        cores: Sequence[int] = ()
        if self.sweep.bind == "core":  # the same cores for every start
            cores = find_platform(self.platform).cores(self.sweep.ranks)
        try:
            self._workers = Workers(self.platform, self.sweep, self.changes, self.library, self.folder)
            return self._workers.greet(self.named, cores)
        except BaseException:
            self._kill()
            raise

    def _kill(self) -> None:
        if self._workers:
            self._workers.kill()
        self._workers = None

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        try:
            if self._workers and kind is None:
                self._workers.stop()
            self._kill()
        finally:
            self._open.__exit__(kind, *rest)

    def _start_again(self, implementation: str) -> None:
        """Start fresh ranks on the same cores and GPUs; RanksLost if they cannot start."""
        try:
            if moved := self._start().moved(self.greeting):
                self._kill()
                raise PlatformError(moved)
        except PlatformError as error:
            raise RanksLost(error, implementation) from None

    def _hopeless(self, name: str) -> str:
        """Return why an implementation was given up, or ""."""
        for error, (tries, reason) in _LAST.items():
            losses = [loss for loss in self._losses if (loss.implementation, loss.error) == (name, error)]
            if len(losses) >= tries:
                where = ", ".join(dict.fromkeys(_name(loss.case) for loss in losses))
                return reason.format(where=where, why=losses[-1].reason)
        return ""

    def measure(
        self, case: Case, names: Sequence[str], sampling: Sampling, launches: Mapping[str, int] | None = None
    ) -> Iterator[Result]:
        """Yield a result of each implementation; `launches` as in `sampling.measure`. Raises RanksLost."""
        waiting, so_far = list[str](), list[Result]()
        for name in names:
            if reason := self._hopeless(name):
                yield Skipped(case, name, self.platform, reason)
            else:
                waiting.append(name)

        # Each iteration uses one set of ranks; a second set starts only if the first is lost.
        while waiting:
            if self._workers is None:
                self._start_again(waiting[0])
            assert self._workers
            try:
                results = self._workers.measure(case, waiting, sampling, launches or {}, self.tell)
                for result in self._taken(waiting, case, results):
                    so_far.append(result)
                    yield result
            except WorkersLost as loss:
                messages = self._workers.messages
                self._kill()
                if waiting:
                    yield self._charge(loss, waiting, messages)
                    if loss.rank is not None and case.work and case.work.resumable:  # the other ranks continue
                        case, waiting = replace(case, work=case.work.resumed(so_far, loss.rank)), [loss.implementation]
                        so_far = []
                else:
                    notice = f"after the last result of {case.title}: {loss}; fresh ranks go on"
                    notify(notice, 2)

    def _taken(self, waiting: list[str], case: Case, results: Iterator[Result]) -> Iterator[Result]:
        several = bool(case.work and case.work.several)
        for result in results:
            if several:  # this one may yield more results; earlier ones are finished
                del waiting[: waiting.index(result.implementation)]
            else:
                waiting.remove(result.implementation)
            yield result
        if several:
            waiting.clear()
        if waiting:
            raise WorkersLost(case, "the ranks left it out")

    def _charge(self, loss: WorkersLost, waiting: list[str], messages: str) -> Failed:
        """Return the failed row of the implementation that lost the ranks, and remove it from `waiting`."""
        # The heartbeat names the running implementation. If its result has come, the next one is charged.
        if loss.implementation not in waiting:
            loss.implementation = waiting[0]
        waiting.remove(loss.implementation)

        # Show each compiler message about a source once.
        reason = loss.reason
        for other in self._losses:
            if (other.error, other.reason) == (SourceError.__name__, loss.reason):
                reason = f"its kernel could not be compiled, as for {other.implementation}"
                break
        self._losses.append(loss)
        if messages and is_library(loss.implementation):
            reason = f"{reason}; its library's messages are in {messages}"
        return Failed(loss.case, loss.implementation, self.platform, reason)
