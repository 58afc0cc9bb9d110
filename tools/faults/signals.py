"""Trials that send signals to the command at every moment of its life, and a second signal while sampling."""

import signal
import time
from collections.abc import Callable, Iterator

from tools.faults.trial import BAD, GOOD, LONG, SHORT, SIGNALS, Done, Scene, Trial, nothing

SLOW = '#!/bin/sh\ncase "$*" in *-o*) touch @/compiling; sleep 5;; esac\nexec c++ "$@"\n'
PLOTTED = tuple(word for word in SHORT if word != "--no-plot")


def after(seconds: float) -> Callable[[Scene], None]:
    return lambda scene: time.sleep(seconds)


def starting(scene: Scene) -> None:
    """Wait until the ranks import, or start MPI."""
    scene.until(lambda: len(scene.ranks()) == 2)


def starting_mpi(scene: Scene) -> None:
    """Wait until MPI shares its memory."""
    scene.until(lambda: len(scene.ranks()) == 2)
    names = scene.den.path("/dev/shm")
    scene.until(lambda: any(names.iterdir()) or scene.rows())


def compiling(scene: Scene) -> None:
    """Wait until a compiler runs."""
    scene.until((scene.folder / "compiling").exists)


def slow_compiler(scene: Scene) -> None:
    program = scene.folder / "cxx"
    program.write_text(SLOW.replace("@", str(scene.folder)))
    program.chmod(0o700)


def sampling(scene: Scene) -> None:
    """Wait until there are some rows."""
    scene.until(lambda: scene.rows(2))


def replacing(scene: Scene) -> None:
    """Kill a rank, and wait until other ranks are started."""
    sampling(scene)
    before = scene.ranks()
    scene.send(signal.SIGKILL, before[0])
    scene.until(lambda: set(scene.ranks()) - set(before))


def plotting(scene: Scene) -> None:
    """Wait until the run file is complete and figures are drawn."""
    scene.until(lambda: scene.run.exists() and b'"kind":"end"' in scene.run.read_bytes())


MOMENTS = {  # by name: the moment, the command, the variables
    "at once": (after(0.0), LONG, {}),
    "after 150 ms": (after(0.15), LONG, {}),
    "when ranks start": (starting, LONG, {}),
    "when MPI starts": (starting_mpi, LONG, {}),
    "while compiling": (compiling, LONG, {"CXX": "@/cxx", "COLLBENCH_CACHE": "@/home/cache"}),
    "while sampling": (sampling, LONG, {}),
    "while ranks are replaced": (replacing, LONG, {}),
    "while plotting": (plotting, PLOTTED, {}),
}

_PYTHON = 2.0  # seconds in which Python prints the interrupt
EARLY = ("at once", "after 150 ms")  # the interpreter may not have reached our code


def whole(scene: Scene, done: Done) -> str:
    """Return a complaint unless the rows are still there, and the file has its end."""
    if not scene.run.exists():
        return ""
    last = scene.run.read_bytes().splitlines()[-1:]
    return "" if last and b'"kind":"end"' in last[0] else "the run file does not say how the run ended"


def whole_or_before(scene: Scene, done: Done) -> str:
    """The same, except for an exit status of Python's own start."""
    if done.status == BAD and "collbench: error" in done.errors:
        return "the status of an error, but it was a signal"
    return whole(scene, done)


def strike(when: Callable[[Scene], None], number: int, times: int = 1, early: bool = False) -> Callable[[Scene], None]:
    """Return a fault that sends a signal at a moment, once or more often; an early one again if Python swallows it."""

    def fault(scene: Scene) -> None:
        when(scene)
        for _ in range(times):
            scene.send(number)
            time.sleep(0.03)
        if early and swallowed(scene):
            scene.send(number)

    return fault


def swallowed(scene: Scene) -> bool:
    """Return whether Python, before our first line, took Ctrl-C for a failed import, printed it, and continued."""
    said, deadline = scene.folder / "stderr", time.monotonic() + _PYTHON
    while time.monotonic() < deadline and not scene.ended:
        if b"\nKeyboardInterrupt" in said.read_bytes():
            time.sleep(_PYTHON / 4)  # it may also end here
            return not scene.ended
        time.sleep(0.02)
    return False


def sweeps() -> Iterator[Trial]:
    for moment, (when, words, variables) in MOMENTS.items():
        early = moment in EARLY
        prepare = slow_compiler if "CXX" in variables else nothing
        check = whole_or_before if early else whole
        ways = (("INT", 1), ("INT", 2), ("TERM", 1), ("HUP", 1)) if when is sampling else (("INT", 1),)
        for name, times in ways:
            number, status = SIGNALS[name]
            allowed = (status, BAD) if early else (status, GOOD) if when is plotting else (status,)
            title, fault = f"{name} {'twice ' * (times - 1)}{moment}", strike(when, number, times, early)
            yield Trial(title, words, allowed, fault, prepare, variables, check=check, early=early)


def measuring(count: int, seconds: float) -> Callable[[Scene], None]:
    """Return a moment: some seconds after all ranks have started."""

    def when(scene: Scene) -> None:
        scene.until(lambda: len(scene.ranks()) == count)
        time.sleep(seconds)

    return when


def others() -> Iterator[Trial]:
    explain = ("explain", "--on", "cpu", "-b", "64", "-e", "1M", "-f", "2", "--out", "out")
    number, status = SIGNALS["INT"]
    fault = strike(measuring(2, 0.8), number)
    yield Trial("INT during verify", ("verify", "--on", "cpu", "-T", "5"), (status,), fault)
    yield Trial("INT during explain", explain, (status,), fault)
    pair = strike(measuring(4, 0.5), number)
    yield Trial("INT during --ab", (*LONG, "--ab", "A=1"), (status,), pair)


def trials() -> Iterator[Trial]:
    yield from sweeps()
    yield from others()
