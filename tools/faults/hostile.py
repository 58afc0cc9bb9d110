"""Files that nobody means well with (tools/hostile_files.py), each given to a command in a process of its own.

tests/cli/test_hostile.py tries every command with every file, within one process; here the surroundings are real.
"""

from collections.abc import Callable, Iterator
from zlib import crc32

from tools.faults.trial import BAD, GOOD, USAGE, Done, Scene, Trial
from tools.hostile_files import COMMANDS, FILE, HOSTILE, THINGS, Hostile, run_text
from tools.hostile_files import GOOD as GOOD_RUN

EVERY = 80
"""One in so many of the files that hold something odd; of what is no file to read, each as one kind of file."""


def placed(kind: str, hostile: Hostile) -> Callable[[Scene], None]:
    """The file, and a good run beside it."""

    def prepare(scene: Scene) -> None:
        (scene.folder / "bad").mkdir()
        (scene.folder / "good").mkdir()
        (scene.folder / "good" / "run.jsonl").write_text(run_text())
        hostile.make(scene.folder / "bad" / kind)

    return prepare


def silent(scene: Scene, done: Done) -> str:
    """Nothing that a terminal obeys."""
    bad = {sign for sign in done.output + done.errors if not sign.isprintable() and sign not in "\n\t"}
    return f"signs that a terminal obeys: {sorted(bad)}" if bad else ""


def trials() -> Iterator[Trial]:
    for turn, (kind, commands) in enumerate(COMMANDS.items()):
        ways = [(command, words) for command, listed in commands.items() for words in listed if FILE in words]
        for number, hostile in enumerate(HOSTILE[kind]):
            place = crc32(f"{kind} {hostile.name}".encode(errors="replace"))
            if number % len(COMMANDS) != turn if hostile in THINGS else place % EVERY:
                continue
            command, words = ways[(place // EVERY) % len(ways)]
            given = {FILE: f"bad/{kind}", GOOD_RUN: "good"}
            yield Trial(
                f"{command} of {hostile.name!a} as a {kind}, {number}",
                (command, *(given.get(word, word) for word in words)),
                (USAGE,) if hostile in THINGS else (GOOD, BAD, USAGE, 3, 4),
                prepare=placed(kind, hostile),
                check=silent,
            )
