"""The ranks' side of a run: `python -m collbench.measure.worker` measures what the supervisor sends, and only measures.

Rank 0 talks to the supervisor and tells the others.  Every process watches the supervisor itself: should that vanish,
even by kill -9, no rank is left spinning.
"""

import fcntl
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

from collbench.cases import Sampling
from collbench.errors import CaseFailed, CollbenchError, StartFailed
from collbench.lifetimes import end_of
from collbench.measure import cleanup, link
from collbench.measure.carry_out import carry_out, needs
from collbench.measure.installation import UNKNOWN, Installation, installation, refuse_other
from collbench.platforms import compiler, find_platform, open_platform
from collbench.platforms.interface import Platform
from collbench.platforms.processes import Alone, Processes, Team
from collbench.runfile.environment import variables
from collbench.runfile.records import to_case, to_line, to_sweep

FOLDER = "COLLBENCH_LINK"  # the variable that names the folder of socket and page
SUPERVISOR = "COLLBENCH_SUPERVISOR"  # and the one that gives the supervisor's process id
PLATFORM = "COLLBENCH_PLATFORM"  # decides whether MPI is started, before anything is received

_PATIENCE = 3.0  # seconds that a failing rank waits to be ended: its abort could overtake what rank 0 has to say


def main() -> None:
    """Serve one supervisor until it says stop or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # sent by the launcher when another rank has died: go at once
    folder = Path(os.environ[FOLDER])
    ranks = _die_with(int(os.environ[SUPERVISOR]), folder)
    world: Team = Processes.of_world() if find_platform(os.environ[PLATFORM]).process_per_rank else Alone()
    if isinstance(world, Processes):
        world.hang_bells(folder)
    ranks.extend(world.exchange(os.getpid()))
    cleanup.unname()  # MPI's own memory, which every rank has now
    channel = None
    try:
        channel = link.connect(folder) if world.leader else None
        _serve(world, channel, link.Page(folder))
    except link.Closed:
        time.sleep(2 * _PATIENCE)  # the supervisor is gone: the thread that watches tidies up, which an abort would not
        world.abort()
    except CollbenchError as error:
        if channel:
            kind = "failed" if isinstance(error, CaseFailed) else "refused"
            channel.send(
                {kind: str(error), "start": isinstance(error, StartFailed), "files": sorted(cleanup.shared_files())}
            )
            channel.receive(seconds=_PATIENCE)
        else:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")  # for the log, should rank 0 have nothing to say
            time.sleep(_PATIENCE)
        world.abort()


def _serve(world: Team, channel: link.Channel | None, page: link.Page) -> None:
    first = _next(world, channel)
    refuse_other("a rank", installation(), "its command", Installation(*first.get("installation", UNKNOWN)))
    sweep = to_sweep(first["sweep"])
    wanted = needs(sweep, os.environ[PLATFORM])
    if isinstance(world, Processes):  # whose kernels are compiled
        compiler.prove_compiler(world)
    world.bind(first["cores"])  # before memory is touched, which lies near the core that touches it first
    platform = open_platform(sweep, wanted, os.environ[PLATFORM], world)
    _send(channel, _greeting(world, platform, first["named"]))
    while case := _next(world, channel).get("case"):
        _measure(case, platform, channel, page)
    platform.close()


def _greeting(world: Team, platform: Platform, named: Collection[str]) -> dict[str, Any]:
    """What the supervisor must know to write the header, and to clean up after ranks that were killed."""
    return {
        "installation": installation(),
        "pids": world.exchange(os.getpid()),
        "files": sorted(cleanup.shared_files()),
        "topology": platform.topology(),
        "versions": platform.versions(),
        "variables": variables(named=named),
    }


def _measure(order: dict[str, Any], platform: Platform, channel: link.Channel | None, page: link.Page) -> None:
    case = to_case(order)
    sampling = Sampling(**order["sampling"])
    turn = page.turn if channel else lambda name: None
    for result in carry_out(case, order["implementations"], platform, sampling, turn, order["launches"]):
        _send(channel, {"result": to_line(result)})
    _send(channel, {"done": True})


def _next(world: Team, channel: link.Channel | None) -> dict[str, Any]:
    message = world.broadcast(channel.receive() if channel else None)
    assert isinstance(message, dict)
    return message


def _send(channel: link.Channel | None, message: dict[str, Any]) -> None:
    if channel:
        channel.send(message)


def _die_with(supervisor: int, folder: Path) -> list[int]:
    """End the run when the supervisor ends, from a thread that sleeps until then, and tidy up in its place.

    The caller puts the process ids of all ranks into the list; the first of them is the first to try.
    """
    ranks: list[int] = []
    try:
        turn = os.open(folder, os.O_RDONLY)
    except OSError:
        os._exit(1)  # somebody has tidied up
    try:
        wait = end_of(supervisor)
    except ProcessLookupError:
        _tidy(folder, turn)

    def watch() -> None:
        wait()
        if ranks[:1] != [os.getpid()]:
            time.sleep(_PATIENCE)  # the first rank is at it; should it be stuck or not be known yet, each does it
        _tidy(folder, turn)

    threading.Thread(target=watch, daemon=True).start()
    return ranks


def _tidy(folder: Path, turn: int) -> NoReturn:
    """End what belongs to the run of that folder, launcher and compilers too, remove what it leaves, and this process.

    `turn` is the folder opened: whoever locks it first does this, lest two stop each other.
    """
    fcntl.flock(turn, fcntl.LOCK_EX)
    cleanup.end_marked(FOLDER, str(folder), cleanup.shared_files())
    shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
