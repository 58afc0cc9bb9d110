"""Trials with processes of an outside launcher: one fails, differs, stops or dies, and none waits for ever."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from collbench.presence import shared
from collbench.runfile.store import read
from tests.conftest import ROOT
from tools.faults.signals import sampling
from tools.faults.trial import BAD, GOOD, LONG, SHORT, USAGE, Done, Scene, Trial

MPIEXEC = str(Path(sys.executable).with_name("mpiexec"))
TWO = (MPIEXEC, "-n", "2")
ONLY = 'exec {mpiexec} -n 2 sh -c \'if [ "$PMI_RANK" = {rank} ]; then {change}; fi; exec "$@"\' sh "$@"'
"""Two processes, on one of which the shell does something first."""
ENDED = (BAD, USAGE, 9, 137, 255)  # of mpiexec, which counts signals in its own way, or fails itself
CHANGES = {  # by name: the shell's words on one of the two, and the right exit statuses
    "gets a wrong word": ('set -- "$@" --op nothing', (USAGE,)),
    "gets another number of ranks": ('set -- "$@" --ranks 3', (USAGE,)),
    "has no compiler": ("export CXX=no-such-compiler COLLBENCH_CACHE=$PWD/home/c", (USAGE, GOOD)),
    "has a broken MPI": ("export PYTHONPATH=$PWD/broken/mpi:$PYTHONPATH", ENDED),
    "has a broken NumPy": ("export PYTHONPATH=$PWD/broken/numpy:$PYTHONPATH", (BAD, USAGE)),
    "has other code": ("export PYTHONPATH=$PWD/broken/session:$PYTHONPATH", (BAD, USAGE)),
    "ends at once": ("exit 3", (3, *ENDED)),
    "dies at once": ("kill -9 $$", ENDED),
    "never comes": ("exec sleep 1000", ENDED),
    "gets another collective": ('set -- "$@" --op broadcast', (GOOD,)),
}
BROKEN = {"mpi": "mpi4py", "numpy": "numpy"}


def broken(scene: Scene) -> None:
    """Write modules that cannot be imported."""
    for name, module in BROKEN.items():
        (scene.folder / "broken" / name).mkdir(parents=True)
        (scene.folder / "broken" / name / f"{module}.py").write_text("raise ImportError('broken on this node')\n")
    place = scene.folder / "broken" / "session"
    place.mkdir()
    (place / "sitecustomize.py").write_text(
        "import builtins\nreal = builtins.__import__\ndef bad(name, *rest, **more):\n"
        "    if name == 'collbench.measure.session': raise OSError(5, 'Input/output error', name)\n"
        "    return real(name, *rest, **more)\nbuiltins.__import__ = bad\n"
    )


def taken(scene: Scene) -> None:
    scene.run.parent.mkdir()
    scene.run.write_text('{"kind": "header", "format": 3}\n')


def untouched(scene: Scene, done: Done) -> str:
    if len(scene.run.read_text().splitlines()) != 1:
        return "something was written into it"
    return "" if done.errors.count("there is a run already") == 1 else f"said {done.errors[-300:]!r}"


def processes(scene: Scene) -> list[int]:
    """Return the processes of ranks, which have the variables of mpiexec."""
    found = {}
    for pid, line in scene.members().items():
        if "collbench" in line and "mpiexec" not in line:
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            found |= {int(word.split(b"=")[1]): pid for word in words if word.startswith(b"PMI_RANK=")}
    return [found[rank] for rank in sorted(found)]


def kept(scene: Scene, done: Done) -> str:
    return "" if read(scene.run).results else "no row is left"


def told(scene: Scene, done: Done) -> str:
    return "" if "collbench: error: " in done.errors else f"nothing said: {done.errors[-300:]!r}"


WORD = "collbench-first.json"
PLAIN = f"{sys.executable} {ROOT}/tools/ranks/plain.py 2"
JOBS = (
    f"""{PLAIN} "$@" --rendezvous meet & {PLAIN} "$@" --rendezvous meet; status=$?; wait $! && exit 0; exit $status"""
)
"""Two jobs of two processes without MPI, started into one folder at once."""
WORDS: dict[str, Callable[[Scene], None]] = {
    "a pipe": lambda scene: os.mkfifo(scene.folder / WORD),
    "a link": lambda scene: (scene.folder / WORD).symlink_to("/dev/zero"),
}


def unmeasured(scene: Scene, done: Done) -> str:
    return "a run was stored" if scene.run.exists() else ""


def strike(number: int, rank: int) -> Callable[[Scene], None]:
    def fault(scene: Scene) -> None:
        sampling(scene)
        scene.send(number, processes(scene)[rank])

    return fault


def trials() -> Iterator[Trial]:
    quick = (*SHORT, "-T", "5")
    yield Trial("two jobs at one rendezvous", quick, (USAGE,), shell=JOBS, lines=4, check=unmeasured)
    for name, make in WORDS.items():
        words = (*quick, "--impl", "two-shot", "--rendezvous", ".")
        yield Trial(f"a rendezvous that holds {name}", words, (GOOD,), prepare=make, launcher=PLAIN.split())
    for name in (*sorted({*shared()} - {"step"}), "step scale", "step strategies"):
        shell = ONLY.format(mpiexec=MPIEXEC, rank=1, change='set -- "$@" --nothing')
        yield Trial(
            f"rank 1 of an mpiexec of {name} gets a wrong word", name.split(), (USAGE,), shell=shell, check=told
        )
    for name in ("startup", "scan --pairs"):
        shell = ONLY.format(mpiexec=MPIEXEC, rank=1, change="kill -STOP $$")
        words = (*name.split(), "--on", "cpu", "-T", "5")
        yield Trial(f"rank 1 of an mpiexec of {name} stops at once", words, ENDED, shell=shell, speaks=True, limit=30)
    for number, (name, (change, allowed)) in enumerate(CHANGES.items()):
        rank = number % 2
        yield Trial(
            f"rank {rank} of an mpiexec {name}",
            quick,
            allowed,
            prepare=broken,
            shell=ONLY.format(mpiexec=MPIEXEC, rank=rank, change=change),
            limit=75,
            speaks=True,
            unforeseen=True,
            lines=2 if "broken MPI" in name else 1,  # without MPI it cannot inform the other
        )
    yield Trial("an mpiexec into a folder with a run", quick, (USAGE,), prepare=taken, launcher=TWO, check=untouched)
    yield Trial("an mpiexec with a wrong word", (*quick, "--op", "nothing"), (USAGE,), launcher=TWO, check=told)
    yield Trial("an mpiexec of a sweep", quick, (GOOD,), launcher=TWO)
    verify = ("verify", "--on", "cpu", "--impl", "mpi", "--op", "broadcast", "-d", "float")
    yield Trial("an mpiexec of a verify", verify, (GOOD,), launcher=TWO)
    predictions = ("sweep", "--on", "aws-p5", "--no-plot", "--out", "out")
    yield Trial("an mpiexec of predictions", predictions, (GOOD,), launcher=TWO)
    long = (*LONG, "-T", "6")
    fault = strike(signal.SIGSTOP, 1)
    yield Trial("STOP to rank 1 of an mpiexec", long, (BAD,), fault, launcher=TWO, check=kept, speaks=True)
    for rank in (0, 1):
        fault, status = strike(signal.SIGKILL, rank), (128 + signal.SIGKILL, signal.SIGKILL, BAD)
        name = f"KILL to rank {rank} of an mpiexec"
        yield Trial(name, long, status, fault, launcher=TWO, check=kept, speaks=True, killed=True)
    for name, number in {"INT": signal.SIGINT, "TERM": signal.SIGTERM, "KILL": signal.SIGKILL}.items():

        def end(scene: Scene, number: int = number) -> None:
            sampling(scene)
            time.sleep(0.1)
            scene.send(number)

        status = (128 + number, BAD)
        yield Trial(f"{name} to an mpiexec", long, status, end, launcher=TWO, check=kept, speaks=True, killed=True)
