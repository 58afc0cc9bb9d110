"""Trials that kill or stop processes of a run: ranks, their launcher, all of them, and the command itself."""

import signal
import time
from collections.abc import Callable, Iterator

from tools.faults.signals import compiling, replacing, sampling, slow_compiler, starting
from tools.faults.trial import BAD, GOOD, LONG, USAGE, Done, Scene, Trial

MOMENTS = {"when ranks start": starting, "while sampling": sampling}
ALLOWED = {"when ranks start": (USAGE,), "while sampling": (BAD, GOOD)}
"""Right exit statuses of a sweep with ranks that die at a moment."""
FATAL = {"KILL": signal.SIGKILL, "SEGV": signal.SIGSEGV}


def cut(last: int) -> tuple[str, ...]:
    """Return the long sweep up to a size in bytes, with one start of ranks: it ends by itself and needs its ranks.

    With several starts, the ranks of a later one are not needed if the first start of every case is disturbed.
    """
    end = LONG.index("-e")
    return (*LONG[:end], "-e", str(last), *LONG[end + 2 :], "--starts", "1")


CUT = cut(600)
"""A sweep with more sizes than a busy machine measures before the fault."""
PATIENT = 180.0  # seconds for a sweep that replaces its ranks, with more spinning ranks than cores


def launcher(scene: Scene) -> list[int]:
    return [pid for pid, line in scene.members().items() if "mpiexec" in line.split(" ")[0]]


def first(scene: Scene) -> list[int]:
    return scene.ranks()[:1]


def last(scene: Scene) -> list[int]:
    return scene.ranks()[-1:]


VICTIMS: dict[str, Callable[[Scene], list[int]]] = {
    "the first rank": first,
    "the last rank": last,
    "all ranks": lambda scene: scene.ranks(),
    "the launcher": launcher,
}


def failed_row(scene: Scene, done: Done) -> str:
    """Return a complaint unless a row, or a line on fresh ranks, tells of the loss."""
    if done.status == USAGE or not scene.run.exists():
        return ""
    if done.status == GOOD:
        return "" if "; fresh ranks go on" in done.errors else "not a word of ranks that died"
    text = scene.run.read_text()
    return "" if '"kind":"failed"' in text and '"kind":"end"' in text else "no row says what was lost"


def failed_row_or_all(scene: Scene, done: Done) -> str:
    """The same for the launcher; ranks may finish without it."""
    return "" if done.status == GOOD else failed_row(scene, done)


def strike(when: Callable[[Scene], None], who: Callable[[Scene], list[int]], number: int) -> Callable[[Scene], None]:
    """Return a fault that sends a signal to processes at a moment."""

    def fault(scene: Scene) -> None:
        when(scene)
        for pid in who(scene):
            scene.send(number, pid)

    return fault


def strike_after_stop(who: Callable[[Scene], list[int]], number: int) -> Callable[[Scene], None]:
    """Return a fault that stops processes, and then sends a signal to the command."""
    stop = strike(sampling, who, signal.SIGSTOP)

    def fault(scene: Scene) -> None:
        stop(scene)
        time.sleep(0.1)
        scene.send(number)

    return fault


def killed() -> Iterator[Trial]:
    for moment, when in MOMENTS.items():
        for victim, who in VICTIMS.items():
            for name, number in FATAL.items():
                if (moment == "while sampling" and (name == "KILL" or who is first)) or (
                    name == "KILL" and who is last
                ):
                    fault, check = strike(when, who, number), failed_row_or_all if who is launcher else failed_row
                    yield Trial(f"{name} to {victim} {moment}", CUT, ALLOWED[moment], fault, check=check, limit=PATIENT)
    fault = strike(sampling, last, signal.SIGKILL)
    yield Trial("KILL to a rank of the third start", (*CUT, "--starts", "3"), (GOOD, BAD), fault, limit=PATIENT)


def stopped() -> Iterator[Trial]:
    words = (*cut(200), "-T", "2")
    for victim, who in VICTIMS.items():
        fault = strike(sampling, who, signal.SIGSTOP)
        if victim == "the launcher":  # ranks continue without it
            yield Trial(f"STOP to {victim} while sampling", words, (GOOD, BAD), fault)
        else:
            yield Trial(f"STOP to {victim} while sampling", words, (BAD,), fault, check=failed_row, limit=PATIENT)


def commands() -> Iterator[Trial]:
    moments = {"while sampling": sampling, "while ranks are replaced": replacing}
    for moment, when in moments.items():
        fault = strike(when, lambda scene: [scene.pid], signal.SIGKILL)
        yield Trial(f"KILL to the command {moment}", LONG, (137,), fault, killed=True)
    variables = {"CXX": "@/cxx", "COLLBENCH_CACHE": "@/home/cache"}
    fault = strike(compiling, lambda scene: [scene.pid], signal.SIGKILL)
    yield Trial("KILL to the command while compiling", LONG, (137,), fault, slow_compiler, variables, killed=True)
    for name, who in {"last rank": last, "launcher": launcher}.items():
        fault = strike_after_stop(who, signal.SIGKILL)
        yield Trial(f"KILL to the command with a stopped {name}", LONG, (137,), fault, killed=True)
    fault = strike_after_stop(first, signal.SIGINT)
    yield Trial("INT to the command with a stopped first rank", LONG, (130,), fault)


def trials() -> Iterator[Trial]:
    yield from killed()
    yield from stopped()
    yield from commands()
