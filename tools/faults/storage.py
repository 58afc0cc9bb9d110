"""Trials with folders of results that are removed, replaced or full, or that two commands use at once."""

import gzip
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from collbench.errors import CollbenchError
from collbench.runfile.store import read
from tools.faults.signals import PLOTTED, plotting, sampling
from tools.faults.trial import BAD, GOOD, LONG, SHORT, USAGE, Done, Scene, Trial


def removed(scene: Scene) -> None:
    shutil.rmtree(scene.run.parent)


def into_a_file(scene: Scene) -> None:
    removed(scene)
    scene.run.parent.write_text("")


TAKEN: dict[str, Callable[[Scene], object]] = {
    "the folder is removed": removed,
    "the folder is renamed": lambda scene: scene.run.parent.rename(scene.folder / "elsewhere"),
    "the run file is removed": lambda scene: scene.run.unlink(),
    "the folder is a file": into_a_file,
}


def removed_late(scene: Scene) -> None:
    plotting(scene)
    removed(scene)


def rescued(scene: Scene, done: Done) -> str:
    """Return a complaint unless all results are in the place that the error names."""
    words = done.errors.partition("all rows are in ")[2].split()
    if not words:
        return f"no place is named: {done.errors[-300:]!r}"
    results = read(scene.den.path(scene.folder / words[0])).results  # joins absolute paths, too
    return "" if len(results) >= 2 else f"only {len(results)} results were kept"


def disk(nbytes: int) -> Callable[[Scene], None]:
    def prepare(scene: Scene) -> None:
        scene.den.small_disk(scene.folder / "full", nbytes)

    return prepare


def unplotted(scene: Scene, done: Done) -> str:
    try:
        return "" if read(scene.den.path(scene.folder / "full" / "out")).complete else "the run file has no end"
    except CollbenchError as error:
        return f"the run file is lost: {error}; {done.errors[-300:]}"


def enlarged(scene: Scene, done: Done) -> str:
    return "" if "--shm-size=" in done.errors else f"the fix is not named: {done.errors[-300:]!r}"


def two_at_once(scene: Scene, done: Done) -> str:
    """Return a complaint unless one command measured and the other was refused."""
    statuses = sorted((scene.folder / name).read_text().strip() for name in ("first", "second"))
    return "" if statuses == ["0", "2"] else f"statuses {statuses}"


RESUMED = """
echo mine >precious; "$@" && sed -i '$ d' out/run.jsonl && sed -i '$ d' out/run.jsonl || exit 9
ln -s ../precious out/run.jsonl.new; exec "$1" -m collbench sweep --resume out --no-plot
"""
EIGHT = 'for i in 1 2 3 4 5 6 7 8; do ( "$@"; echo $? >status$i ) & done; wait'


def spared(scene: Scene, done: Done) -> str:
    """Return a complaint if a link in the folder led to a change of the user's file."""
    text = (scene.folder / "precious").read_text()
    return "" if text == "mine\n" and read(scene.run).complete else f"the user's file holds {text!r}"


def all_stored(scene: Scene, done: Done) -> str:
    statuses = [path.read_text().strip() for path in scene.folder.glob("status*")]
    runs = [*(scene.folder / "results" / "runs").iterdir()]
    return "" if statuses == ["0"] * len(runs) == ["0"] * 8 else f"{len(runs)} runs, statuses {statuses}"


def bomb(scene: Scene) -> None:
    (scene.folder / "bomb.log.gz").write_bytes(gzip.compress(b"1" + b"\n1e9 NCCL \xf0\x9f\x98\x80" * 2**24, 1))


def full_of(where: str, words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(where if word == "out" else word for word in words)


def trials() -> Iterator[Trial]:
    for name, take in TAKEN.items():

        def fault(scene: Scene, take: Callable[[Scene], object] = take) -> None:
            sampling(scene)
            take(scene)

        yield Trial(f"{name} while measuring", LONG, (BAD,), fault, check=rescued)
    yield Trial("the folder is removed while plotting", PLOTTED, (BAD, GOOD), removed_late)
    words = full_of("full/out", LONG)
    yield Trial("a disk of 8 KiB", words, (BAD,), prepare=disk(8 << 10), check=rescued)
    # The run file fits; the pictures of some 16 and 24 KiB do not.
    words = (*full_of("full/out", PLOTTED), "-n", "2")
    yield Trial("a disk of 28 KiB while plotting", words, (BAD,), prepare=disk(28 << 10), check=unplotted)
    small = 'unshare --mount sh -c \'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"\' sh "$@"'
    yield Trial("a /dev/shm of 1 MiB", SHORT, (USAGE,), shell=small, check=enlarged)
    both = '( "$@"; echo $? >first ) & ( "$@" >/dev/null 2>&1; echo $? >second ); wait; exit 0'
    yield Trial("two runs into one folder", SHORT, (GOOD,), shell=both, check=two_at_once)
    yield Trial("a resumed run with a link beside it", SHORT, (GOOD,), shell=RESUMED, check=spared)
    words = ("sweep", "--on", "dgx-h100", "-e", "64", "--no-plot")
    yield Trial("eight commands at once", words, (GOOD,), shell=EIGHT, check=all_stored)
    little = 'ulimit -v 1500000; exec "$@"'
    yield Trial(
        "a compressed log of 256 MiB", ("import", "bomb.log.gz"), (USAGE,), prepare=bomb, shell=little, limit=30
    )
    for where in ("/proc/x", "file/x"):
        words = full_of(where, SHORT)
        yield Trial(f"--out {where}", words, (USAGE,), prepare=lambda scene: (scene.folder / "file").touch())
    for name, content in {"binary": b"\xff\xfe\0", "empty": b"", "torn": b'{"kind": "hea'}.items():

        def write(scene: Scene, content: bytes = content) -> None:
            Path(scene.folder, "bad.jsonl").write_bytes(content)

        yield Trial(f"plot of a {name} file", ("plot", "bad.jsonl"), (USAGE,), prepare=write)
