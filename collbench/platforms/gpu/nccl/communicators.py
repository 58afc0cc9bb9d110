"""NCCL communicators of a process's ranks, and NCCL's log of its choices.

NCCL allows shared GPUs since 2.30 (NCCL_MULTI_RANK_GPU_ENABLE, set before it starts). The kernels of all ranks of a
GPU must then fit at once: with too many CTAs, a rank waits for a peer that never starts. So NCCL's start and its
first operation of a kind have a time limit.

NCCL chooses algorithm, protocol and channels for each operation, and reports them only in its log. A log slows
operations, so it is enabled only for an untimed one. NCCL reads NCCL_DEBUG again after ncclResetDebugInit (tested
with 2.27 to 2.32).
"""

import ctypes
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from io import StringIO
from pathlib import Path
from typing import Any

from collbench.errors import CaseFailed, StartFailed, TimedOut, Unsupported
from collbench.platforms.gpu.cuda import NCCL_LIBRARY
from collbench.platforms.gpu.launch import GpuLauncher
from collbench.platforms.gpu.nccl import CAPTURED, LIMIT, MIXING, in_words
from collbench.platforms.gpu.nccl.functions import NcclFunctions, SimulateEnd
from collbench.platforms.gpu.nccl.paths import PathCommunicator, PathMemory
from collbench.platforms.interface import NOT_SAID, FastPath, Prepared, Ran
from collbench.results import Note

PLANNING = "TUNING,COLL"  # subsystems that tell what is run
STARTING = "INIT,REG,NVLS,ALLOC"  # that tell why memory cannot be registered
RESET = "ncclResetDebugInit"  # a function, after which NCCL reads the variables again
_FILE = "NCCL_DEBUG_FILE"

_PLAN = re.compile(
    r"NCCL INFO (?P<operation>\w+)(?: \[(?P<path>[\w ]+)\])?: (?P<nbytes>\d+) Bytes -> "
    r"(?:Algo (?P<algorithm>\w+) proto (?P<protocol>\w+) channel\{Lo\.\.Hi\}=\{(?P<low>\d+)\.\.(?P<high>\d+)\}"
    r"|Kernel (?P<kernel>\w+) nchannels (?P<channels>\d+)|.*)"
)
"""Lines of NCCL 2.24 and newer; 2.31 adds the size of clusters at the end."""
_PATHS = {"Symmetric": "symm", "Copy Engine": "ce", "Hierarchical CE": "ce"}
_TIMINGS = re.compile(r"NCCL INFO Init timings - .*?(total [\d.]+ \(.*?\))")
_WARNING = re.compile(r"NCCL WARN (.*)")
_REFUSAL = re.compile(r"NCCL INFO (.*(?:\b[Ss]ymmetric\b.*\bnot support|symmetricSupport 0).*)")


def what_ran(log: str) -> Ran:
    """Return what the last operation in a log ran as; nothing if NCCL is silent, as of sends and receives."""
    plans = list(_PLAN.finditer(log))
    if not plans:
        return NOT_SAID
    plan = plans[-1]
    if plan["algorithm"]:
        channels = int(plan["high"]) - int(plan["low"]) + 1
        return Ran(plan["algorithm"].lower().replace("_", ""), plan["protocol"].lower(), channels)
    if plan["path"] not in _PATHS:
        return NOT_SAID

    # A symmetric kernel has the name of its operation before its own.
    kernel = (plan["kernel"] or "").partition("_")[2]
    return Ran(_PATHS[plan["path"]], kernel, int(plan["channels"]) if plan["channels"] else None)


def why_not(log: str) -> str:
    """Return NCCL's last warning of a log, else its last line on symmetric memory that is not supported."""
    for pattern in (_WARNING, _REFUSAL):
        if reasons := pattern.findall(log):
            return str(reasons[-1]).strip()
    return "its log does not say why"


def init_timings(log: str) -> str:
    """Return how NCCL itself divides the time that a communicator took to start; "" where it does not say."""
    timings = _TIMINGS.search(log)
    return f"NCCL of its first start, in seconds: {timings[1]}" if timings else ""


@contextmanager
def logging(functions: NcclFunctions, subsystems: str) -> Iterator[StringIO]:
    """Switch NCCL's log of these subsystems on inside, and write it to what this gives once that is over.

    It stays empty where the user has NCCL write to a file of his own, which NCCL would begin anew.
    """
    log, users, reset = StringIO(), dict(os.environ), functions.find(RESET)
    if users.get(_FILE) or not reset:
        yield log
        return
    with tempfile.TemporaryDirectory(prefix="collbench-nccl-") as folder:
        path = Path(folder, "log")
        shown = filter(None, (subsystems, users.get("NCCL_DEBUG_SUBSYS", "INIT") if users.get("NCCL_DEBUG") else ""))
        os.environ.update({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": ",".join(shown), _FILE: str(path)})
        reset()
        try:
            yield log
        finally:
            for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", _FILE):
                os.environ.pop(name)
                if name in users:
                    os.environ[name] = users[name]
            reset()
            if path.exists():
                log.write(path.read_text(encoding="utf-8", errors="replace"))
            if users.get("NCCL_DEBUG"):
                sys.stdout.write(log.getvalue())  # the user's own setting is kept
                sys.stdout.flush()
            elif settle := functions.find("ncclCommGetAsyncError"):
                # 2.30 to 2.32 break at the process's end if they have logged nothing since: nobody sees this warning.
                settle(None, ctypes.byref(ctypes.c_int()))


_SHARING_SINCE = 23000  # NCCL 2.30.0 in NCCL's own counting
_NAMED_ALONE_SINCE = 23100  # for collectives that NCCL_ALGO does not name, it leaves no algorithm
_ONE_PROCESS = "one process for all GPUs: NVLS registers no buffers, NCCL's best case is a process for each (mpirun)"
"""NCCL 2.30, src/init.cc: where a process holds several ranks of a host, nvlsRegSupport is off; rings register."""
_OPT_IN = "NCCL_SINGLE_PROC_MEM_REG_ENABLE"  # NCCL 2.28: a process with several ranks registers all the same
_UNREGISTERED = "cudaMalloc, not registered"
"""NCCL, src/transport/p2p.cc: with NCCL_LEGACY_CUDA_REGISTER=0, the default, captures do not register them."""
_START = "start"
_PROCESS_EACH = "a process for each GPU"


class Communicators:
    """One communicator a local rank, by CuPy or of a fast path; all calls of one operation go into one group."""

    def __init__(self, launcher: GpuLauncher, timeout: float, path: FastPath | None = None) -> None:
        self._cuda, self._team, self._places = launcher.cuda, launcher.team, launcher.places
        self._streams, self._clock, self._timeout = launcher.streams, launcher.clock, timeout
        self.path, self._symmetric = path, bool(path and path.symmetric)
        self._taken = 0  # bytes of GPU memory that NCCL took from this process's devices
        self.hung = False  # whether NCCL took longer than `timeout` seconds: nothing here may be waited for any more

    @property
    def note(self) -> Note:
        """The mode of NCCL that is measured, and its buffers, which decide its speed where there are several GPUs."""
        settings = [f"{LIMIT}={os.environ[LIMIT]}"] if os.environ.get(LIMIT) else []
        if os.environ.get(MIXING, "0") != CAPTURED[MIXING]:
            settings.append(f"{MIXING}={os.environ[MIXING]}")
        mode = _ONE_PROCESS if len(self._streams) > 1 else _PROCESS_EACH
        if len(self._places.gpus) == 1 or self._symmetric or os.environ.get(_OPT_IN) == "1":
            mode = ""
        return Note.of(*settings, mode) | Note(buffers=self.path.buffers if self.path else _UNREGISTERED)

    @cached_property
    def functions(self) -> NcclFunctions:
        """NCCL's functions that CuPy lacks; only where CuPy found an NCCL."""
        return NcclFunctions(self._cuda.nccl)

    @property
    def library(self) -> str:
        """NCCL and its version."""
        return f"NCCL {in_words(int(self._cuda.nccl.get_version()))}"

    @cached_property
    def ranks(self) -> dict[int, Any]:
        """The communicators by local rank, made when they are first asked for; Unsupported where NCCL cannot.

        *Collective*: a process that started NCCL while another cannot would wait for it for ever.
        """
        with self._team.agreeing(), self._cuda.failing_as(Unsupported, f"NCCL could not start{_more('WARN', 'why')}"):
            self.refuse()
            identity = self.identity
            del self.__dict__["identity"]  # used once, also where NCCL does not start
            with self._taking():
                made: dict[int, Any] = self._bounded(_START, partial(self._in_group, partial(self._join, identity)))
            return made

    @cached_property
    def identity(self) -> Any:
        """*Collective*: the id by which the ranks find each other, made by the first process and handed to all."""
        with self._team.agreeing(), self._cuda.failing_as(Unsupported, f"NCCL could not start{_more('WARN', 'why')}"):
            made = None if self._team.rank else self._bounded(_START, self._cuda.nccl.get_unique_id)
        return self._team.exchange(made)[0]

    def refuse(self) -> None:
        """*Collective*: raise Unsupported, with what to do, where there is no NCCL that these ranks could share."""
        nccl = self._cuda.nccl
        if not nccl.available:
            raise Unsupported("CuPy found no NCCL: pip install 'nvidia-nccl-cu12>=2.30' (or -cu13)")
        versions = self._team.exchange(int(nccl.get_version()))
        if len(set(versions)) > 1:
            listed = ", ".join(in_words(version) for version in sorted(set(versions)))
            raise Unsupported(f"the processes load different NCCL releases ({listed}): install one on every node")
        slots = [place.slot for place in self._places.places]  # to an old NCCL, slices of one GPU are one GPU
        if versions[0] < _SHARING_SINCE and len(set(slots)) < len(slots):
            raise Unsupported(
                f"NCCL {in_words(versions[0])} has no ranks that share a GPU, 2.30 has: upgrade nvidia-nccl-cu12 "
                f"(or -cu13), or name a newer one with {NCCL_LIBRARY}=/path/libnccl.so.2"
            )

    def refuse_unplanned(self, collective: str) -> None:
        """Raise Unsupported, before the call fails, if the variables leave NCCL no algorithm for a collective."""
        # NCCL 2.31, src/tuning/cost_model.cc: with NCCL_ALGO no collective has an algorithm but those that it names.
        # Settings without a variable are left alone.
        version = int(self._cuda.nccl.get_version())
        algorithms, protocols = os.environ.get("NCCL_ALGO", ""), os.environ.get("NCCL_PROTO", "")
        left_out = algorithms and not _is_for(algorithms, collective) and _is_for(protocols, collective)
        if left_out and version >= _NAMED_ALONE_SINCE:
            raise Unsupported(
                f"NCCL {in_words(version)} has no algorithm for it: NCCL_ALGO={algorithms} is for other collectives, "
                f"and NCCL_PROTO={protocols} for this too; set NCCL_ALGO='ring;{algorithms}'"
            )

    def _join(self, identity: Any, rank: int) -> Any:
        """Return a communicator of a local rank, which finds the others by the first process's id."""
        # Not by CuPy's initAll, which keeps the GIL: nothing else would run before NCCL comes back, no limit either.
        everyone = len(self._places.places)
        if self.path:
            return PathCommunicator(self.functions, everyone, identity, rank, self.path)
        return self._cuda.nccl.NcclCommunicator(everyone, identity, rank)

    def register(self, memory: PathMemory) -> None:
        """*Collective*: tell NCCL of the buffers of a fast path; Unsupported with NCCL's own reason if it has none."""
        failure = ""

        def register(rank: int) -> None:
            self.ranks[rank].register(memory.base[rank], memory.nbytes)

        with logging(self.functions, STARTING) as log:
            try:
                ranks = self.ranks
                with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "NCCL did not register buffers"):
                    with self._taking():
                        self._bounded("register buffers", partial(self._in_group, register))
                    if any(comm.refused for comm in ranks.values()):
                        raise CaseFailed("NCCL made no window of the buffers")
            except (TimedOut, StartFailed):
                raise
            except CaseFailed as error:
                failure = str(error)
        if failure:
            raise Unsupported(f"{failure}: {why_not(log.getvalue())}")

    def _in_group(self, action: Callable[[int], Any]) -> dict[int, Any]:
        """Call something for every local rank, on its device, in one group; return what it returns."""
        made = {}
        self._cuda.nccl.groupStart()
        try:
            for rank, rank_stream in self._streams.items():
                rank_stream.enter()
                made[rank] = action(rank)
        finally:
            self._cuda.nccl.groupEnd()
        return made

    @contextmanager
    def _taking(self) -> Iterator[None]:
        """Count the GPU memory that NCCL takes inside."""
        before = self._free()
        yield
        self._taken += max(0, before - self._free())

    def _free(self) -> int:
        free = 0
        for device in self._places.devices:
            self._cuda.runtime.setDevice(device)
            free += int(self._cuda.runtime.memGetInfo()[0])
        return free

    def taken(self) -> int:
        """*Collective*: bytes of GPU memory that NCCL has taken for a rank so far, the most of all processes."""
        most: int = max(self._team.exchange(self._taken // len(self._streams)))
        return most

    def ran(self, prepared: Prepared) -> Ran:
        """*Collective*: have an operation planned, and return what NCCL's log says that it runs as, on rank 0."""
        if not self.functions.find(RESET):
            return NOT_SAID
        planning = self._cuda.failing_as(CaseFailed, "while NCCL planned")
        with self._team.agreeing(), logging(self.functions, PLANNING) as log, planning:
            self._bounded("plan an operation", partial(self._clock.plan, prepared))
        return what_ran(log.getvalue())

    def first(self, launch: Callable[[int], None]) -> None:
        """*Collective*: carry out one operation, which connects the ranks; CaseFailed if that takes too long."""
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while NCCL connected its ranks"):
            with self._taking():
                self._bounded("connect its ranks", lambda: launch(1))
            if not self._clock.wait_at_most(self._timeout):
                self._give_up()
                for comm in self.ranks.values():
                    comm.check_async_error()  # where NCCL knows that another process or the way to it is gone
                raise self._hang("carry out its first operation")

    def _bounded(self, doing: str, action: Callable[[], Any]) -> Any:
        """Return or raise what a call does; CaseFailed if it takes too long."""
        # In a thread, since NCCL's calls cannot be interrupted.
        outcome: Future[Any] = Future()

        def run() -> None:
            try:
                outcome.set_result(action())
            except Exception as error:
                outcome.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        if not wait([outcome], self._timeout).done:
            raise self._hang(doing, StartFailed if doing == _START else TimedOut)
        return outcome.result()

    def _hang(self, doing: str, kind: type[CaseFailed] = TimedOut) -> CaseFailed:
        self._give_up()
        return kind(f"NCCL did not {doing} within {self._timeout:.0f} s{_more('INFO', 'how far it came')}")

    def _give_up(self) -> None:
        # Nothing of this is ever freed: CuPy would have NCCL wait for its streams, and so for what hangs.
        self.hung = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def stream(self, rank: int) -> int:
        """The stream of a rank, as NCCL takes it."""
        return int(self._streams[rank].stream.ptr)

    def launch(self, groups: Sequence[Sequence[Callable[[], Any]]], ranks: Sequence[int], launches: int) -> None:
        """Enqueue `launches` operations; `groups` has the calls of one operation by local ranks."""
        nccl = self._cuda.nccl
        for rank in ranks:
            self._streams[rank].use()
        for _ in range(launches):
            for calls in groups:
                nccl.groupStart()
                try:
                    for call in calls:
                        call()
                finally:
                    nccl.groupEnd()

    def estimate(self, calls: Sequence[Callable[[], Any]]) -> float | None:
        """*Collective*: seconds that NCCL expects of one collective, of which these are the local ranks' calls.

        None where it cannot say, as of symmetric kernels.  Nothing is enqueued.  Not for sends and receives: NCCL has
        no estimate of them, and their plans stay, where those of a collective go with the next group.
        """
        # A rank alone is not simulated: NCCL copies at once then, however the group ends.
        if len(self._places.places) == 1 or self._symmetric or self._simulate_end is None:
            return None
        self._cuda.nccl.groupStart()
        with suppress(self._cuda.nccl.NcclError, CaseFailed):  # the end of the group reports it, too
            for call in calls:
                call()
        estimates = self._team.exchange(self._simulate_end())
        return max((seconds for seconds in estimates if seconds is not None), default=None)

    @cached_property
    def _simulate_end(self) -> SimulateEnd | None:
        """NCCL's function; None unless every process has it."""
        # Planning may connect ranks, which takes all of them.
        simulate_end = self.functions.simulate_end()
        return simulate_end if all(self._team.exchange(simulate_end is not None)) else None

    def end(self) -> None:
        """*Collective*: free them within the limit of time; CaseFailed if that takes longer."""
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while NCCL destroyed its communicators"):
            self._bounded("destroy its communicators", self.destroy)

    def destroy(self) -> None:
        """Free them.  NCCL first waits until every graph that holds one of its operations is gone."""
        if self.path and "ranks" in self.__dict__:
            self._in_group(lambda rank: self.ranks[rank].forget())
        for comm in self.__dict__.pop("ranks", {}).values():
            comm.destroy()


def _more(level: str, what: str) -> str:
    """Return how to learn more from NCCL, unless the user has asked it already; the supervisor keeps what it prints."""
    return "" if os.environ.get("NCCL_DEBUG") else f" (NCCL_DEBUG={level} says {what})"


def _is_for(setting: str, collective: str) -> bool:
    """Return whether a value such as `ring;allreduce:tree` is for a collective: by its name, or for all."""
    entries = filter(None, setting.lower().split(";"))
    return any(":" not in entry or entry.partition(":")[0] == collective for entry in entries)
