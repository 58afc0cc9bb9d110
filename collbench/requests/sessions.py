"""Sessions, made from requests, that measure or predict."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from collbench.cases import Sweep
from collbench.errors import RunFileError, UsageError, notify
from collbench.host.launcher import complaint, launched
from collbench.host.sanitize import read_lines
from collbench.measure.interleave import Arm, Interleaving, MultiLibrary
from collbench.measure.resumed import ResumedRun
from collbench.measure.session import Session
from collbench.measure.supervisor import Supervisor
from collbench.platforms import on_auto
from collbench.platforms.cpu import mpi_libraries
from collbench.platforms.processes import Alone, Team
from collbench.present.notices import started
from collbench.requests.sweeps import Launched, SweepRequest, cut_short, measured_sweep, predicted_sweep, split_names
from collbench.results import Result
from collbench.results.disturbed import disturbed_in_words
from collbench.runfile.store import NAME, Run
from collbench.topology.system import System
from collbench.units import counted


class Unopened(NamedTuple):
    """A session that has not been entered yet, with remarks for the user."""

    session: Session
    remarks: list[str]


def measuring_session(request: SweepRequest, usual: Callable[[Sweep], Path | None] = lambda sweep: None) -> Unopened:
    """Return the session that measures the request, with an outside launcher's ranks if it started any.

    *usual* returns the default folder of a sweep's run, or None to store nothing. UsageError if this machine cannot
    carry out the request.
    """
    if wrong := complaint():
        raise UsageError(wrong)
    joined = launched()
    libraries = _libraries(request, joined)
    platform, sweep = measured_sweep(request, joined, max(1, len(libraries)))
    folder = request.folder or usual(sweep)
    # The ranks of all libraries live at the same time: Interleaving measures them in turn.
    ranks: str | MultiLibrary = platform
    if libraries:
        ranks = MultiLibrary(sweep, libraries, folder)
        sweep = ranks.sweep
    session = Session(ranks, sweep, joined, folder)
    return Unopened(session, cut_short(request, sweep, platform))


def resuming_session(path: Path) -> Session | None:
    """Return the session that completes the run of a sweep in its run file; None if the run is complete.

    *path* is the run file or its folder; under a launcher only the first process reads it. RunFileError if it is not a
    run file, UsageError if it cannot be resumed on this machine.
    """
    joined = launched()
    if path.is_dir():
        path /= NAME
    existing = ResumedRun.of(path, _content(path, joined))
    processes = existing.header.processes
    if processes != (joined or (0, 0))[1]:
        how = "by ranks that collbench started; to resume it, start it without a launcher"
        if processes:
            how = f"by {processes} processes of a launcher; to resume it, start {processes} with the launcher"
        raise UsageError(f"{path} was measured {how}")
    if existing.complete:
        return None
    return Session(existing.header.topology.platform, existing.sweep, joined, None, existing=existing)


def session_by_ranks(
    platform: str, sweep: Sweep, numbers: Sequence[int], joined: Launched, folder: Path | None
) -> Session:
    """Return the session that measures a sweep on several numbers of ranks, ascending, in turn.

    The ranks start `sweep.starts` times, and each start measures one round. A launcher's ranks measure the sweep
    unchanged. UsageError if some numbers of ranks have fewer cases than others.
    """
    sweep = replace(sweep, sampling=replace(sweep.sampling, iters=sweep.starts))
    if joined:
        return Session(platform, sweep, joined, folder)
    arms = []
    for ranks in numbers:
        part = replace(sweep, ranks=ranks)
        starts = [Supervisor(platform, part, folder=folder) for _ in range(sweep.starts)]
        arms.append(Arm(starts, part, counted(ranks, "rank")))
    if len({len(list(arm.sweep.cases())) for arm in arms}) > 1:
        raise UsageError("some sizes round to the same size for some numbers of ranks; give a larger -b or -f")
    return Session(Interleaving(platform, arms, first=-1), replace(sweep, ranks=numbers[-1]), None, folder)


def everyone(joined: Launched) -> Team:
    """Return the launcher's processes, or this process alone."""
    if not joined:
        return Alone()
    from collbench.measure.worker import world  # the ranks' side

    return world()


def _content(path: Path, joined: Launched) -> bytes:
    """Return the bytes of a run file; under a launcher only the first process reads it."""
    team = everyone(joined)
    with team.agreeing():
        content = b"".join(line for _, line in read_lines(path, RunFileError)) if team.leader else b""
    return bytes(team.broadcast(content))


def _libraries(request: SweepRequest, joined: Launched) -> Sequence[Any]:
    """Return the libraries to measure; UsageError if one is not installed, or the ranks cannot load it."""
    if request.mpi and request.nccl:
        raise UsageError("--mpi is for ranks on a CPU, and --nccl for ranks on a GPU; leave one out")
    option, platform = ("--nccl", "gpu") if request.nccl else ("--mpi", "cpu")
    named = split_names(request.nccl or request.mpi)
    if not named:
        return []
    place = on_auto() if request.on == "auto" else request.on
    if place != platform:
        where = f"ranks on a {platform.upper()}, but these run on {place}"
        raise UsageError(f"{option} names libraries for {where}; add --on {platform}, or leave {option} out")
    if joined:
        raise UsageError(
            f"{option} starts ranks for each library, which is impossible under a launcher (mpirun, srun). "
            f"Start collbench without one, or leave {option} out (MPI: the library's launcher; NCCL: COLLBENCH_NCCL)"
        )
    if request.starts not in (None, 1):
        raise UsageError(f"{option} starts the ranks once for each library; leave --starts out")
    if request.mpi:
        return [mpi_libraries.find(name) for name in named]

    # Imported here: only ranks on GPUs need it.
    from collbench.platforms.gpu import nccl

    return [nccl.find(name) for name in named]


def predicting_session(
    system: System,
    request: SweepRequest,
    usual: Callable[[System, Sweep], Path | None] = lambda system, sweep: None,
    what_ifs: Sequence[str] = (),
) -> Session:
    """Return the session that predicts the request on that system; `usual` as in `measuring_session`."""
    # Imported here: importing the model takes as long as everything else.
    from collbench.measure.predicted import Modelled

    part, sweep = predicted_sweep(system, request)
    folder = request.folder or usual(part, sweep)
    return Session(Modelled(part, sweep, tuple(what_ifs)), sweep, launched(), folder, modelled=True)


def run_to_end(session: Session, each: Callable[[Result], object] | None = None) -> Run:
    """Run the session to its end and return the results as a run, stored or not."""
    with started(session):
        for result in session.run():
            if each:
                each(result)
    if advice := disturbed_in_words(session.results):
        notify(advice, 5)  # five frames up is the user's call of `collbench.sweep`
    return replace(session.as_run(), advice=advice)
