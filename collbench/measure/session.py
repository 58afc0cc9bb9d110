"""A whole run: measured or predicted results, each stored before the next."""

import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, tee
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from collbench import __version__
from collbench.algorithms import apart, find
from collbench.cases import Sweep
from collbench.exits import BAD, GOOD, SIGNALLED
from collbench.host import signals
from collbench.measure.interleave import Arm, Interleaving, Starts
from collbench.measure.launcher_watchdog import WATCHDOG
from collbench.measure.protocol import Ranks, Tell, WorkerHello, tell_nobody
from collbench.measure.resumed import ResumedRun
from collbench.measure.supervisor import Supervisor
from collbench.platforms.cpu.mpi_libraries import short_name
from collbench.results import Outcome, Result
from collbench.results.facts import labelled
from collbench.runfile.schema import Changes, Header, Interleaved, environment_of
from collbench.runfile.store import UNSTORED, Reopened, Run, Writer

if TYPE_CHECKING:
    from collbench.measure.worker import Joined

COPIES = 2  # sets of ranks in a pair; both hold memory at the same time


class Session:
    """One sweep on a platform, by name, or on given ranks; iterate over `run()` inside `with`.

    Without a folder nothing is stored. `modelled` marks predictions. A resumed run first yields its stored rows, and
    then completes its file.
    """

    def __init__(
        self,
        on: str | Ranks,
        sweep: Sweep,
        launched: tuple[int, int] | None,
        folder: Path | None,
        modelled: bool = False,
        existing: ResumedRun | None = None,
    ) -> None:
        self.sweep = sweep
        self.modelled = modelled
        self._existing = existing
        results = existing.results if existing else ()
        self._joined: Joined | None = None
        self._ranks: Ranks
        if not isinstance(on, str):
            self._ranks = on
        elif launched:
            from collbench.measure import worker  # only needed in ranks

            self._ranks = self._joined = worker.Joined(on, sweep, results)
        else:
            self._ranks = Starts(on, sweep, results, existing.path.parent if existing else folder)
        self.leader = launched is None or launched[0] == 0

        # Only the first process of a launcher stores the run.
        with self._agreeing():
            self._writer: Writer | None = None
            if self.leader and existing:
                self._writer = Reopened(existing.path, existing.lines)
            elif self.leader and folder:
                self._writer = Writer(folder)
        self.path = self._writer.path if self._writer else None
        self.results: list[Result] = []
        self.topology = ""
        self.header = Header()  # of the run file, once the ranks are ready
        self.labels: list[str] = []  # names of rows, according to the ranks
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # Any error before the header is written removes the run file.
            undo = stack.enter_context(ExitStack())
            undo.callback(self.discard)
            if not self.modelled:  # a prediction has no ranks to end
                stack.enter_context(signals.deferred())
            stack.enter_context(self._ranks)
            hello = self._ranks.greeting
            self.header = Header(
                collbench=__version__,
                command=("collbench", *sys.argv[1:]),
                started=_now(),
                processes=self.sweep.ranks if self._joined else 0,
                environment=environment_of(hello.versions, hello.variables),
                topology=hello.topology,
                sweep=replace(self.sweep, starts=hello.starts),
                interleaved=hello.interleaved,
            )
            self.topology = self.header.topology.name
            self.labels = [_label(name, self.header.environment.versions) for name in self.sweep.implementations]
            with self._agreeing():
                if self._existing:
                    if self.leader:  # launchers give each rank its own variables
                        self._existing.refuse_other(self.header)
                    self.header = replace(self._existing.header, resumed=(*self._existing.header.resumed, _now()))
                if self._writer:
                    self._writer.header(self.header)
            undo.pop_all()
            self._open = stack.pop_all()
        if self._joined:
            WATCHDOG.last_words = self._note_hang
        return self

    def _agreeing(self) -> AbstractContextManager[None]:
        """Return a context for code that may fail on one process of a launcher alone."""
        return self._joined.agreeing() if self._joined else nullcontext()

    def _note_hang(self, reason: str) -> str:
        """Write the failed row and the end of the run file, for the watchdog; return text with the path."""
        if not self._writer or not self._joined:
            return ""
        self._writer.append(self._joined.failed(f"{reason}; the run ends here"))
        came = signals.unanswered()
        self._writer.end(_now(), SIGNALLED + came if came else BAD)
        return f"; what was measured is in {self.path}"

    def as_run(self) -> Run:
        """Return the run as `read` would return it from the run file."""
        return Run(self.path or UNSTORED, self.header, tuple(self.results), True, exit_status(self.results))

    def discard(self) -> None:
        """Remove the run file, because no rank could start."""
        if self._writer:
            self._writer.discard()

    @property
    def cores(self) -> tuple[int, ...]:
        """The core of each rank, if ranks are bound."""
        return self._ranks.greeting.cores

    def run(self, tell: Tell = tell_nobody) -> Iterator[Result]:
        """Yield the stored results of a resumed run, then each new result once it is on disk; report progress."""
        self._ranks.tell = tell
        for result in self._existing.results if self._existing else ():
            self.results.append(result)
            yield result

        # Store the result before it is shown and before the next case starts.
        for result in self._ranks.run():
            self.results.append(result)
            if self._writer:
                self._writer.append(result)
            yield result

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None = None, *rest: Any) -> None:
        with self._writer or nullcontext():
            # Before the ranks end: an outside launcher may then end this process too.
            if self._writer and isinstance(error, KeyboardInterrupt):
                self._writer.end(_now(), signals.status(error))
            try:
                self._open.__exit__(kind, error, *rest)
            except KeyboardInterrupt as interruption:
                if self._writer:
                    self._writer.end(_now(), signals.status(interruption))
                raise
            if kind is None and self._writer:
                self._writer.end(_now(), exit_status(self.results))


def _label(name: str, versions: Mapping[str, str]) -> str:
    """Return the label of an implementation's rows, from the ranks' report of their library."""
    implementation, (_, library) = find(name), apart(name)
    if not implementation or not implementation.library:
        return name
    product = "mpi" if "cpu" in implementation.platforms else "nccl"
    version = versions.get("@".join(filter(None, (product, library))), "")
    said = short_name(version) if product == "mpi" else f"NCCL {version}"
    return labelled(name, said) if version else name


def exit_status(results: Sequence[Result]) -> int:
    """Return GOOD if all measured results are right, BAD if any is wrong or failed, or if every row was skipped."""
    return BAD if any(result.outcome.bad for result in results) or all_skipped(results) else GOOD


def all_skipped(results: Sequence[Result]) -> bool:
    """Return whether rows exist and all of them were skipped."""
    return {result.outcome for result in results} == {Outcome.SKIPPED}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class _OneArm(Ranks):
    """One setting of a pair, as the ranks of a Session."""

    def __init__(self, starts: Sequence[Supervisor], results: Iterator[Result], interleaved: Interleaved) -> None:
        self._starts, self._results, self._interleaved = starts, results, interleaved

    def start(self, stack: ExitStack) -> WorkerHello:
        """Return the hello of the setting's ranks; the pair starts and ends them."""
        hello = self._starts[0].greeting
        return replace(hello, starts=len(self._starts), interleaved=replace(self._interleaved, cores=hello.cores))

    def run(self) -> Iterator[Result]:
        """Yield every result of the setting, in the order of the table."""
        return self._results


class PairedSession(Interleaving):
    """A sweep under two settings, and a run file of each; iterate over `pairs()` inside `with`.

    NCCL and MPI read most variables once in a process, so each setting has its own ranks. Each of the `settings`
    holds a change of the environment, its name in the header, and the folder of its run file.
    """

    def __init__(self, platform: str, sweep: Sweep, settings: Sequence[tuple[Changes, str, Path]]) -> None:
        # Each setting's header lists all variables that differ.
        named: dict[str, None] = {}
        for changes, _, _ in settings:
            named |= dict.fromkeys(changes)
        arms = []
        for changes, name, folder in settings:
            starts = [Supervisor(platform, sweep, changes, tuple(named), folder=folder) for _ in range(sweep.starts)]
            arms.append(Arm(starts, sweep, name))
        super().__init__(platform, arms)
        self.sweep, run = sweep, str(uuid.uuid4())
        self.sessions: list[Session] = []
        measured = tee(map(self.measure, self.cases), len(arms))  # measure each case once for both sessions

        # Create both files or none: the second folder may exist.
        with ExitStack() as undo:
            for number, (_, name, folder) in enumerate(settings):
                results = chain.from_iterable(map(itemgetter(number), measured[number]))
                arm = _OneArm(arms[number].ranks, results, Interleaved(id=run, setting=name))
                self.sessions.append(Session(arm, sweep, None, folder))
                undo.callback(self.sessions[-1].discard)
            self._undo = undo.pop_all()

    def start(self, stack: ExitStack) -> WorkerHello:
        """Start the ranks of both settings, and write the headers; if ranks do not start, no file remains."""
        with self._undo:
            hello = super().start(stack)
            self._undo.pop_all()
        for session in self.sessions:
            stack.enter_context(session)
        return hello

    def pairs(self, tell: Tell) -> Iterator[tuple[Result, Result]]:
        """Yield the results of the two settings for each case and implementation once they are on disk."""
        self.tell = tell
        first, second = self.sessions
        yield from zip(first.run(), second.run(), strict=True)
