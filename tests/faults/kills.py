"""Processes of a run that are killed or stopped: ranks, their launcher, all of them, and the command itself."""

import signal
import time
from collections.abc import Callable, Iterator

from tests.faults.signals import launching, replacing, sampling, starting, starting_mpi
from tests.faults.trial import BAD, LONG, USAGE, Done, Scene, Trial

MOMENTS = {"when ranks start": starting, "when MPI starts": starting_mpi, "while sampling": sampling}
FATAL = {"KILL": signal.SIGKILL, "SEGV": signal.SIGSEGV, "TERM": signal.SIGTERM}
CUT = (*LONG[: LONG.index("-e")], "-e", "96", *LONG[LONG.index("-e") + 2 :])
"""A sweep of a few sizes, which ends."""


def launcher(scene: Scene) -> list[int]:
    return [pid for pid, line in scene.members().items() if "mpiexec" in line.split(" ")[0]]


def proxy(scene: Scene) -> list[int]:
    return [pid for pid, line in scene.members().items() if "hydra_pmi_proxy" in line.split(" ")[0]]


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
    """A loss while measuring is a row."""
    if done.status == USAGE or not scene.run.exists():
        return ""
    text = scene.run.read_text()
    return "" if '"kind": "failed"' in text and '"kind": "end"' in text else "no row says what was lost"


def trials() -> Iterator[Trial]:
    for moment, when in MOMENTS.items():
        for victim, who in VICTIMS.items():
            for name, number in FATAL.items():
                if name != "KILL" and moment == "when MPI starts":
                    continue

                def fault(scene: Scene, when=when, who=who, number=number) -> None:  # type: ignore[no-untyped-def]
                    when(scene)
                    for pid in who(scene):
                        scene.send(number, pid)

                allowed = (BAD,) if when is sampling else (USAGE,)
                yield Trial(f"{name} to {victim} {moment}", CUT, allowed, fault, check=failed_row)
    for victim, who in {**VICTIMS, "the proxy": proxy}.items():

        def stop(scene: Scene, who=who) -> None:  # type: ignore[no-untyped-def]
            sampling(scene)
            for pid in who(scene):
                scene.send(signal.SIGSTOP, pid)

        words = (*CUT, "-T", "2")
        if victim not in ("the launcher", "the proxy"):  # without which ranks measure on
            yield Trial(f"STOP to {victim} while sampling", words, (BAD,), stop, check=failed_row)
        else:
            yield Trial(f"STOP to {victim} while sampling", words, (0, BAD), stop)
    for moment, when in {
        **MOMENTS,
        "when the launcher starts": launching,
        "while ranks are replaced": replacing,
    }.items():

        def end(scene: Scene, when=when) -> None:  # type: ignore[no-untyped-def]
            when(scene)
            scene.send(signal.SIGKILL)

        yield Trial(f"KILL to the command {moment}", LONG, (137,), end, killed=True)
    for name, who in {"a stopped rank": last, "a stopped first rank": first, "a stopped launcher": launcher}.items():

        def end_over(scene: Scene, who=who) -> None:  # type: ignore[no-untyped-def]
            sampling(scene)
            for pid in who(scene):
                scene.send(signal.SIGSTOP, pid)
            time.sleep(0.1)
            scene.send(signal.SIGKILL)

        yield Trial(f"KILL to the command with {name}", LONG, (137,), end_over, killed=True)
    for name, who in {"a stopped rank": last, "a stopped launcher": launcher}.items():

        def ask_over(scene: Scene, who=who) -> None:  # type: ignore[no-untyped-def]
            sampling(scene)
            for pid in who(scene):
                scene.send(signal.SIGSTOP, pid)
            scene.send(signal.SIGINT)

        yield Trial(f"INT to the command with {name}", LONG, (130,), ask_over)
