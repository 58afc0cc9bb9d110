"""One set of rank processes: how they are started, spoken to, and ended."""

import contextlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from collbench.cases import Case, Sampling, Sweep
from collbench.errors import PlatformError
from collbench.interrupts import waiting
from collbench.lifetimes import life
from collbench.measure import cleanup, link, start, worker
from collbench.measure.greeting import Greeting
from collbench.measure.installation import UNKNOWN, Installation, installation, refuse_other
from collbench.measurement import Result
from collbench.platforms import find_platform
from collbench.platforms.cpu.mpi_libraries import Library
from collbench.runfile.environment import Setting
from collbench.runfile.records import case_fields, sweep_fields, to_result

_HOMEWARD = 5.0  # seconds for ranks to end by themselves
_DYING = 10.0  # seconds for a killed process to be gone, unless it hangs in a driver
_SLOWEST = 50e6  # bytes per second that filling, checking and moving a case's buffers may at worst take


def seconds_for(case: Case, sampling: Sampling) -> float:
    """Without progress after which a case has failed: the time-out, and the time that its bytes take."""
    return sampling.timeout + case.nbytes * case.ranks / _SLOWEST


class Lost(Exception):
    """The workers are of no more use; the message says why."""

    def __init__(self, reason: str, implementation: str = "", start: bool = False) -> None:
        super().__init__(reason)
        self.implementation = implementation
        self.start = start  # whether it was a library that did not start


class Workers:
    """One set of rank processes."""

    def __init__(self, platform: str, sweep: Sweep, setting: Setting, library: Library | None) -> None:
        self._sweep = sweep
        self._patience = find_platform(platform).startup
        self._channel: link.Channel | None = None
        self._files: list[str] = []
        self._pids: tuple[int, ...] = ()
        command = start.command(platform, sweep.ranks, library)  # asks launchers: nothing is there to be left yet
        with ExitStack() as undo:
            try:
                self._begun = time.time() - 1.0  # files' times are those of the kernel's last tick
                self._folder = Path(tempfile.mkdtemp(prefix="collbench-"))
                undo.callback(shutil.rmtree, self._folder, ignore_errors=True)
                (self._folder / start.SCRATCH).mkdir()
                self._log = self._folder / "log"
                self._page = link.Page(self._folder)
                self._server = undo.enter_context(link.listen(self._folder))
                environment = start.environment(platform, self._folder, setting, library)
                self._process = self._begin(command, environment)
            except OSError as error:
                raise PlatformError(
                    f"the ranks did not start: {error}; they need a folder for temporary files "
                    "with some room: set TMPDIR to one"
                ) from None
            undo.pop_all()

    def _begin(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the supervisor, which ends the ranks in order
            )

    def greet(self, named: Sequence[str], cores: Sequence[int]) -> Greeting:
        """Wait for the ranks' hello to the sweep; PlatformError with their reason if they cannot start."""
        self._server.settimeout(0.05)
        deadline = time.monotonic() + self._patience
        while self._channel is None:
            with contextlib.suppress(TimeoutError):
                self._channel = link.Channel(self._server.accept()[0])
            if self._process.poll() is not None:
                raise PlatformError(f"the ranks did not start: {self._last_words()}")
            if time.monotonic() > deadline:
                raise PlatformError(f"the ranks did not start within {self._patience:g} s{self._printed()}")
        try:
            wishes = {"sweep": sweep_fields(self._sweep), "named": list(named), "cores": list(cores)}
            self._channel.send({"installation": installation(), **wishes})
            message = self._channel.receive(max(0.0, deadline - time.monotonic()))
        except link.Closed:
            raise PlatformError(f"the ranks did not start: {self._last_words()}") from None
        if message is None:
            raise PlatformError(f"the ranks were not ready within {self._patience:g} s{self._printed()}")
        self._files = message["files"]
        if "refused" in message:
            raise PlatformError(message["refused"])
        refuse_other("a rank", Installation(*message.get("installation", UNKNOWN)), "this command", installation())
        facts = {name: message[name] for name in ("topology", "versions", "variables")}
        self._pids = tuple(message["pids"])
        return Greeting(**facts, pids=self._pids, cores=tuple(cores))

    def measure(
        self, case: Case, names: Sequence[str], sampling: Sampling, launches: Mapping[str, int]
    ) -> Iterator[Result]:
        """Results as they come; Lost if the ranks die, hang or give up."""
        assert self._channel
        how = {"implementations": list(names), "sampling": asdict(sampling), "launches": dict(launches)}
        try:
            self._channel.send({"case": {**case_fields(case), **how}})
            while "done" not in (message := self._receive(case)):
                if result := to_result(message["result"]):
                    yield result
        except link.Closed:
            raise Lost(self._last_words(), self._page.look()[1]) from None

    def _receive(self, case: Case) -> dict[str, Any]:
        """The next message; Lost if for too long nothing new is begun."""
        assert self._channel
        timeout = seconds_for(case, self._sweep.sampling)
        turns, since = self._page.look()[0], time.monotonic()
        while True:
            if message := self._channel.receive(0.2):
                if "failed" in message or "refused" in message:
                    reason = message.get("failed") or message["refused"]
                    raise Lost(str(reason), self._page.look()[1], bool(message.get("start")))
                return message
            if self._process.poll() is not None:
                raise link.Closed
            if (now := self._page.look()[0]) != turns:
                turns, since = now, time.monotonic()
            elif time.monotonic() - since > timeout:
                raise Lost(f"no progress for {timeout:.0f} s (--timeout)", self._page.look()[1])

    def _last_words(self) -> str:
        """Why the ranks ended, from what they and the launcher printed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)  # the launcher says how a rank ended once all others have
        text = self._log.read_text(encoding="utf-8", errors="replace")
        if killed := start.signal_of(text):
            return f"a rank was ended by signal {killed} ({signal.strsignal(killed)})"
        errors = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception|Exit)\b.*)$", text, re.MULTILINE)
        last = errors[-1] if errors else next(iter(text.strip().splitlines()[-1:]), "")
        return f"a rank ended with status {self._process.returncode}" + (f": {last}" if last else "")

    def _printed(self) -> str:
        """The last line that the ranks and the launcher printed, if any."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def stop(self) -> None:
        """Tell the ranks to end, and wait until they have left nothing behind, unless a signal is waiting.

        The launcher is not waited for: MPICH's gforker spins for a second or more where two ranks end at once.
        """
        assert self._channel
        with contextlib.suppress(link.Closed):
            self._channel.send({"stop": True})
            deadline = time.monotonic() + _HOMEWARD
            while any(map(life, self._pids)) and time.monotonic() < deadline and not waiting():
                time.sleep(0.02)
        if not any(map(life, self._pids)):
            self._files = []  # gone in good order; the names may soon be others'

    def kill(self) -> int | None:
        """End every process at once, and remove what a killed process cannot; the number of one that does not end.

        One that waits for a device within its driver can do so for as long as the device keeps silent.
        """
        cleanup.end_marked(worker.FOLDER, str(self._folder), self._files)
        if self._channel is None:  # ranks that have greeted leave no names
            cleanup.unname_orphans(self._begun)
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()  # where /proc does not show it
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DYING)
        if self._channel:
            self._channel.close()
        self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        return self._process.pid if self._process.poll() is None else None
