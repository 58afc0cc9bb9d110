"""Records of the exercises, students' folders, and notes of solved ones.

A folder such as `puzzles/03-ring-step/` has exercise.toml (an `Exercise`), task.md for the student, and the starter.
"""

import json
import re
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from collbench.algorithms.records import KernelRecord
from collbench.errors import UsageError
from collbench.host.cache import private_folder, state_folder
from collbench.host.files import replace_whole

LIBRARY = "mpi"
"""The library that answers are timed against."""
_HOME = Path(__file__).with_name("puzzles")
_RECORD = re.compile(r"^\[record\]\n(.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL)


class Mistake(Struct, frozen=True, forbid_unknown_fields=True):
    """A typical mistake: its conditions, and a sentence; a condition that is left out is always met."""

    says: str
    stage: Literal["", "together", "late", "early", "again"] = ""
    caught: Literal["", "race", "wrong", "stuck", "crash", "slow"] = ""
    access: str = ""  # of a race: a part of a text such as "kernel reads input"
    value: str = ""  # of the wrong elements: a key of `value` in judge.toml
    where: Literal["", "all", "tail", "shard", "some"] = ""  # of the wrong elements
    own: bool = False  # whether the missing or doubled input is the rank's own
    place: Literal["", "in place", "apart"] = ""  # of all wrong results; inputs and results share memory, or not
    first: bool = False  # whether no rank ends the first call
    hint: str = ""  # a second sentence, if the first does not say how to mend it
    has: str = ""  # a regular expression that the kernel without comments must contain
    lacks: str = ""  # one that it must not contain


class Exercise(Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A puzzle: a kernel with a hole, and the settings of its judge."""

    title: str
    kernel: str  # name of the file, the entry and the implementation
    rung: str  # of the ladder, to compare with
    sizes: tuple[str, ...]  # to time
    ranks: tuple[int, ...]  # to judge with
    record: KernelRecord  # as for any user's kernel
    hints: dict[str, str]  # for each level of a check: builds, right, races, speed
    mistake: tuple[Mistake, ...] = ()
    beats: Literal["", "library"] = ""  # whether it must be faster than the library at one of the sizes
    node: int = 0  # ranks of a node; 0: all share memory
    awaits: str = "a packet"  # what a rank waits for in its FIFO; {} is the rank before it
    raises: int = 0  # flags and packets that the fewest steps need in the judge's first run; 0: not counted
    folder: Path = _HOME  # of its exercise.toml

    @cached_property
    def number(self) -> int:
        """The number, counted from 1."""
        return int(self.folder.name.partition("-")[0])

    @cached_property
    def name(self) -> str:
        """The name, for example ring-step."""
        return self.folder.name.partition("-")[2]

    def files(self) -> dict[str, str]:
        """Return the texts of a student's files by file name."""
        record = _RECORD.search((self.folder / "exercise.toml").read_text(encoding="utf-8"))
        assert record
        return {
            f"{self.kernel}.cu": (self.folder / f"{self.kernel}.cu").read_text(encoding="utf-8"),
            f"{self.kernel}.toml": record[1].strip() + "\n",
            "README.md": (self.folder / "task.md").read_text(encoding="utf-8"),
        }


@cache
def exercises() -> tuple[Exercise, ...]:
    """Return all exercises, the easiest first."""
    records = []
    for path in sorted(_HOME.glob("*/exercise.toml")):
        fields = msgspec.toml.decode(path.read_bytes()) | {"folder": str(path.parent)}
        records.append(msgspec.convert(fields, Exercise, dec_hook=lambda kind, value: kind(value)))
    return tuple(records)


def find(word: str) -> Exercise:
    """Return the exercise with a number (3) or name (ring-step); UsageError if there is none."""
    for exercise in exercises():
        if word in (exercise.name, exercise.kernel) or (word.isdecimal() and int(word) == exercise.number):
            return exercise
    choices = ", ".join(f"{exercise.number} {exercise.name}" for exercise in exercises())
    raise UsageError(f"there is no exercise {word!r}; choose from: {choices}")


def within(folder: Path) -> Exercise | None:
    """Return the exercise in a student's folder; None if it has none."""
    return next((exercise for exercise in exercises() if (folder / f"{exercise.kernel}.toml").is_file()), None)


def default(exercise: Exercise) -> str:
    """Return the default folder of an exercise, for example exercise-3-ring-step."""
    return f"exercise-{exercise.number}-{exercise.name}"


def start(exercise: Exercise, folder: Path | None = None) -> Path:
    """Write the files of an exercise to a folder, and return the folder.

    UsageError if a file there was changed, or the folder cannot be written.
    """
    target = folder or Path(default(exercise))
    texts = exercise.files()
    for name, text in texts.items():
        path = target / name

        # A student's work is never overwritten.
        if path.exists() and (not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != text):
            raise UsageError(f"{path} was changed and is not overwritten: --folder starts in another folder")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            replace_whole(target / name, text)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}; --folder names another folder") from None
    note(exercise, folder=str(target.absolute()))
    return target


def _notes() -> Path:
    """Return the file of notes; it is private, since kernels in folders that it names are compiled and run."""
    return private_folder(state_folder(UsageError) / "exercises", "notes", "COLLBENCH_STATE", UsageError) / "notes.json"


def notes() -> dict[str, dict[str, str]]:
    """Return the notes on each exercise by name: its folder, and its date of solution."""
    try:
        stored = json.loads(_notes().read_text(encoding="utf-8"))
    except (OSError, ValueError, UsageError):
        return {}
    return stored if isinstance(stored, dict) else {}


def note(exercise: Exercise, **facts: str) -> None:
    """Store facts of an exercise, unless the file of notes cannot be written."""
    stored = notes()
    stored[exercise.name] = stored.get(exercise.name, {}) | facts
    try:
        replace_whole(_notes(), json.dumps(stored, indent=1))
    except (OSError, UsageError):
        return
