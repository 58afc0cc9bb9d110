"""NCCL's communicators for the ranks that a process holds, and what NCCL needs where ranks share a GPU.

NCCL allows that since 2.30 (NCCL_MULTI_RANK_GPU_ENABLE, before it starts).  Every rank's kernel must then
find room next to the others': with too many CTAs each, one waits for a peer that is never started.  So whatever NCCL
does for the first time, its start and the first operation of a kind, has a limit of time.

NCCL's own estimate of an operation is by ncclGroupSimulateEnd (NCCL 2.22 and newer), which CuPy does not offer.  A
group of calls that is closed by it is planned as any other, but not enqueued.  Every copy of NCCL counts its own
groups, so the function must be that of the copy which CuPy calls.  It is looked up through CuPy's extension module,
among the libraries that this one was linked with; nothing is loaded for it.  Structure and numbers are those of nccl.h;
a test compiles that header and compares.
"""

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import cached_property
from itertools import starmap
from math import isfinite
from typing import Any

from collbench.errors import CaseFailed, StartFailed, TimedOut, Unsupported
from collbench.platforms.gpu.cuda import NCCL_LIBRARY, Stream
from collbench.platforms.gpu.launch import GpuLauncher
from collbench.platforms.gpu.placement import Placement
from collbench.results import Note

MAGIC = 0x74685283
VERSION = 22203  # of the header that had these fields first
UNKNOWN = -1.0  # NCCL_UNDEF_FLOAT

_MICROSECONDS = 1e-6

SimulateEnd = Callable[[], float | None]
"""Close this thread's open group and enqueue nothing: seconds that NCCL expects of it; None if it cannot say."""


class SimInfo(ctypes.Structure):
    """`ncclSimInfo_t`; a new one is what NCCL_SIM_INFO_INITIALIZER makes."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("estimatedTime", ctypes.c_float),  # microseconds
    ]

    def __init__(self) -> None:
        super().__init__(ctypes.sizeof(SimInfo), MAGIC, VERSION, UNKNOWN)


def find(nccl: Any) -> SimulateEnd | None:
    """The function of the NCCL behind `cupy.cuda.nccl`; None if that is too old, or not to be found.

    No group may be open.
    """
    extension = getattr(sys.modules.get(nccl.NcclCommunicator.__module__), "__file__", None)
    if not extension:
        return None
    try:
        function = ctypes.CDLL(extension, mode=os.RTLD_NOLOAD).ncclGroupSimulateEnd
    except (OSError, AttributeError):
        return None

    # Every copy of NCCL counts its own groups: for another copy than CuPy's there would be none to close.
    nccl.groupStart()
    if function(ctypes.byref(SimInfo())) == 0:
        return lambda: _seconds(function)
    with suppress(nccl.NcclError):  # it may be closed all the same
        nccl.groupEnd()
    return None


def _seconds(function: Any) -> float | None:
    """Return NCCL's estimate; None where NCCL leaves it unset, which is negative."""
    info = SimInfo()
    if function(ctypes.byref(info)) or not isfinite(info.estimatedTime) or info.estimatedTime <= 0:
        return None
    return float(info.estimatedTime) * _MICROSECONDS


_SHARING_SINCE = 23000  # NCCL 2.30.0 in NCCL's own counting
MOST_CTAS = 64  # that NCCL ever uses
LIMIT = "NCCL_MAX_CTAS"
_SPARE = 2  # multiprocessors that are left to others where ranks share a GPU: the gate's block must find a place, too
_ONE_PROCESS = "one process for all GPUs: NCCL registers no buffers, its best case is a process for each (mpirun)"
"""NCCL 2.30, src/init.cc: where a process holds several ranks of a host, nvlsRegSupport is off."""
_START = "start"
_PROCESS_EACH = "a process for each GPU"


class Communicators:
    """One communicator a local rank; all calls of one operation go into one group."""

    def __init__(self, launcher: GpuLauncher, timeout: float) -> None:
        self._cuda, self._team, self._places = launcher.cuda, launcher.team, launcher.places
        self._streams, self._clock, self._timeout = launcher.streams, launcher.clock, timeout
        self.hung = False  # whether NCCL took longer than `timeout` seconds: nothing here may be waited for any more

    @property
    def note(self) -> Note:
        """What decides how fast NCCL can be here: which of its modes is measured, where there are several GPUs."""
        settings = [f"{name}={os.environ[name]}" for name in (LIMIT, _MIXING) if os.environ.get(name)]
        mode = _ONE_PROCESS if len(self._streams) > 1 else _PROCESS_EACH
        return Note.of(*settings, mode if len(self._places.gpus) > 1 else "")

    @property
    def library(self) -> str:
        """NCCL and its version."""
        return f"NCCL {in_words(int(self._cuda.nccl.get_version()))}"

    @cached_property
    def ranks(self) -> dict[int, Any]:
        """The communicators by local rank, made when they are first asked for; Unsupported where NCCL cannot.

        *Collective*: a process that started NCCL while another cannot would wait for it for ever.
        """
        with (
            self._team.agreeing(),
            self._cuda.failing_as(Unsupported, f"NCCL could not start{_more('WARN', 'why')}"),
        ):
            self.refuse()
            return dict(zip(self._streams, self._make(), strict=True))

    @cached_property
    def identity(self) -> Any:
        """*Collective*: the id by which the ranks find each other, made by the first process and handed to all."""
        with (
            self._team.agreeing(),
            self._cuda.failing_as(Unsupported, f"NCCL could not start{_more('WARN', 'why')}"),
        ):
            made = None if self._team.rank else self._bounded(_START, self._cuda.nccl.get_unique_id)
            return self._team.exchange(made)[0]

    def refuse(self) -> None:
        """*Collective*: raise Unsupported where there is no NCCL, or none for ranks that are placed so."""
        nccl = self._cuda.nccl
        if not nccl.available:
            raise Unsupported("CuPy found no NCCL: pip install 'nvidia-nccl-cu12>=2.30' (or -cu13)")
        versions = self._team.exchange(int(nccl.get_version()))
        if len(set(versions)) > 1:
            listed = ", ".join(in_words(version) for version in sorted(set(versions)))
            raise Unsupported(f"the processes load different NCCLs ({listed}): install the same on every node")
        slots = [place.slot for place in self._places.places]  # to an old NCCL, slices of one GPU are one GPU
        if versions[0] < _SHARING_SINCE and len(set(slots)) < len(slots):
            raise Unsupported(
                f"NCCL {in_words(versions[0])} has no ranks that share a GPU, 2.30 has: upgrade nvidia-nccl-cu12 "
                f"(or -cu13), or name a newer one with {NCCL_LIBRARY}=/path/libnccl.so.2"
            )

    def _make(self) -> Sequence[Any]:
        """Make the local ranks' communicators in one group; they find the others by the first process's id."""
        # Not by CuPy's initAll, which keeps the GIL: nothing else would run before NCCL comes back, no limit either.
        nccl, everyone, identity = self._cuda.nccl, len(self._places.places), self.identity
        del self.__dict__["identity"]  # which serves once, also where NCCL does not start

        def join(rank: int, rank_stream: Stream) -> Any:
            rank_stream.enter()
            return nccl.NcclCommunicator(everyone, identity, rank)

        def start() -> Sequence[Any]:
            nccl.groupStart()
            try:
                return list(starmap(join, self._streams.items()))
            finally:
                nccl.groupEnd()

        made: Sequence[Any] = self._bounded(_START, start)
        return made

    def first(self, launch: Callable[[int], None]) -> None:
        """*Collective*: carry out one operation, which connects the ranks; CaseFailed if that takes too long."""
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while NCCL connected its ranks"):
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
        """Note that NCCL hangs."""
        # Nothing of this is ever freed: CuPy would have NCCL wait for its streams, and so for what hangs.
        self.hung = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def stream(self, rank: int) -> int:
        """The stream of a rank, as NCCL takes it."""
        return int(self._streams[rank].stream.ptr)

    def launch(self, groups: Sequence[Sequence[Callable[[], Any]]], ranks: Sequence[int], launches: int) -> None:
        """Enqueue that many operations, of one of which these are the calls of these local ranks, group by group."""
        nccl = self._cuda.nccl
        for rank in ranks:
            self._streams[rank].use()
        for _ in range(launches):
            for calls in groups:
                nccl.groupStart()
                for call in calls:
                    call()
                nccl.groupEnd()

    def estimate(self, calls: Sequence[Callable[[], Any]]) -> float | None:
        """*Collective*: seconds that NCCL expects of one collective, of which these are the local ranks' calls.

        None where it cannot say.  Nothing is enqueued.  Not for sends and receives: NCCL has no estimate of them, and
        what was planned of them stays planned, where a collective is forgotten with the next group.
        """
        # A rank alone is not simulated: NCCL copies at once then, however the group ends.
        if len(self._places.places) == 1 or self._simulate_end is None:
            return None
        self._cuda.nccl.groupStart()
        with suppress(self._cuda.nccl.NcclError):  # of which the group's end speaks too
            for call in calls:
                call()
        estimates = self._team.exchange(self._simulate_end())
        return max((seconds for seconds in estimates if seconds is not None), default=None)

    @cached_property
    def _simulate_end(self) -> SimulateEnd | None:
        """NCCL's function; None unless every process has it."""
        # Planning may connect ranks, which takes all of them.
        simulate_end = find(self._cuda.nccl)
        return simulate_end if all(self._team.exchange(simulate_end is not None)) else None

    def end(self) -> None:
        """*Collective*: free them within the limit of time; CaseFailed if that takes longer."""
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while NCCL destroyed its communicators"):
            self._bounded("destroy its communicators", self.destroy)

    def destroy(self) -> None:
        """Free them.  NCCL first waits until every graph that holds one of its operations is gone."""
        for comm in self.__dict__.pop("ranks", {}).values():
            comm.destroy()


def _more(level: str, what: str) -> str:
    """Return how to learn more from NCCL, unless the user has asked it already; the supervisor keeps what it prints."""
    return "" if os.environ.get("NCCL_DEBUG") else f" (NCCL_DEBUG={level} says {what})"


_MIXING = "NCCL_GRAPH_MIXING_SUPPORT"
CAPTURED = {_MIXING: "0"}
"""The environment for operations in graphs: NCCL need not order them with others of the same communicator, for which it
would put an event before and behind each operation of a graph.  Here no operation is enqueued while a graph runs.
NCCL's documentation recommends it where one thread launches the graphs of several communicators.  The same in the
configuration of a communicator (graphUsageMode, NCCL 2.29) is not to be had through CuPy."""

SLICED = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
"""The environment for ranks on slices of one GPU, should NCCL take them for ranks that share it: only a permission."""


def sharing(multiprocessors: int, ranks: int) -> dict[str, str]:
    """Return the environment that NCCL needs where so many ranks share a GPU."""
    # A power of two of CTAs for each rank, so that the kernels of all ranks find room at once.
    fair = 1 << (max(1, (multiprocessors - _SPARE) // ranks).bit_length() - 1)

    # On Hopper and newer NCCL launches clusters of CTAs, each of which must find its multiprocessors within one GPC: on
    # a part of a GPU not all of them may, and the ranks that run wait for ever for the ones that do not.
    return {
        **SLICED,
        LIMIT: str(min(MOST_CTAS, fair)),
        "NCCL_CGA_CLUSTER_SIZE": "0",
        "NCCL_NVLS_ENABLE": "0",
    }


def environment(places: Placement, graph: bool) -> dict[str, str]:
    """Return the variables that NCCL needs for ranks placed so, and for operations in graphs."""
    settings = CAPTURED if graph else {}
    if places.shared:
        return settings | sharing(places.multiprocessors, places.most_sharing)
    return settings | SLICED if places.sliced else settings


def apply(settings: dict[str, str]) -> None:
    """Set what the user has not."""
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def in_words(version: int) -> str:
    """Return the words for NCCL's number of a version, such as `2.30.7` for 23007."""
    # NCCL_VERSION in nccl.h has room for one digit of the minor version up to 2.8 (2804), and for two since.
    major = 1000 if version < 10000 else 10000
    return f"{version // major}.{version % major // 100}.{version % 100}"
