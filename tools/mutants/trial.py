"""A trial of a fault: the command runs on a changed copy of the package, and must not say `ok`."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import of_a_user
from tools import ROOT
from tools.stand_in.ipc import build_driver
from tools.stand_in.whole_commands import MADE_UP

SECONDS = 90  # limit of a command
HANG = "15"  # seconds without progress after which a case counts as hung

CAUGHT, PASSED, BROKEN = "caught", "passed", "broken"


@dataclass(frozen=True)
class Trial:
    """A measurement of one implementation, with as few samples as possible."""

    implementation: str
    size: str = "4000"
    ranks: int = 2
    op: str = "allreduce"
    platform: str = "cpu"
    dtype: str = "float"
    redop: str = "sum"
    more: tuple[str, ...] = ()

    def words(self, folder: Path) -> list[str]:
        what = f"sweep --no-plot --on {self.platform} --impl {self.implementation} --op {self.op} --ranks {self.ranks}"
        how = f"-d {self.dtype} -o {self.redop} -b {self.size} -e {self.size} -n 3 --timeout {HANG}"
        return [*what.split(), *how.split(), "--out", str(folder), *self.more]


@dataclass(frozen=True)
class Mutant:
    """A fault: texts that occur once in a file, and their replacements."""

    name: str
    file: str  # relative to the root of the project
    changes: tuple[tuple[str, str], ...]
    trial: Trial
    unseen: str = ""  # the reason why it is known not to be caught


def mutants() -> tuple[Mutant, ...]:
    known = []
    for record in tomllib.loads(Path(__file__).with_name("faults.toml").read_text(encoding="utf-8"))["mutant"]:
        changes = tuple((change["from"], change["to"]) for change in record.get("changes", [record]))
        trial = Trial(**record["trial"])
        known.append(Mutant(record["name"], record["file"], changes, trial, record.get("unseen", "")))
    return tuple(known)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a trial, and the words of the row."""

    verdict: str
    said: str


@contextmanager
def copied(folder: Path, mutant: Mutant | None = None) -> Iterator[Path]:
    """Yield a copy of the package with or without a fault, and remove it."""
    place = folder / (re.sub(r"\W+", "-", mutant.name) if mutant else "as-it-is")  # a colon would split a search path
    for name in ("collbench", "kernels"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    if mutant:
        change(place, mutant)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def change(place: Path, mutant: Mutant) -> None:
    """Write the fault; AssertionError if a text does not occur exactly once."""
    file = place / mutant.file
    text = file.read_text(encoding="utf-8")
    for old, new in mutant.changes:
        assert text.count(old) == 1, f"{mutant.name}: {mutant.file} holds {old!r} {text.count(old)} times"
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")


def environment(place: Path, trial: Trial, cache: Path) -> Mapping[str, str]:
    """Return the variables of a user with this copy, and with the simulated CuPy for simulated GPUs."""
    path = [str(place)]
    variables = {"COLLBENCH_CACHE": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    if trial.platform == "gpu":
        path += [str(MADE_UP), str(ROOT)]
        machine = {"devices": trial.ranks, "multiprocessors": 8}
        build_driver(place, trial.ranks)
        variables |= {"MADE_UP_MACHINE": json.dumps(machine), "LD_LIBRARY_PATH": str(place)}
    return of_a_user() | variables | {"PYTHONPATH": os.pathsep.join(path)}


def carried_out(place: Path, trial: Trial, cache: Path) -> Outcome:
    """Run the command on a copy; a command without a row for the implementation proves nothing."""
    out = Path(tempfile.mkdtemp(dir=place)) / "out"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "collbench", *trial.words(out)],
        cwd=place,
        env=dict(environment(place, trial, cache)),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    file = out / "run.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    said = [row for row in rows if row.get("implementation") in trial.implementation.split(",")]
    for row in said:
        if row.get("mismatch"):
            return Outcome(CAUGHT, reason(row))
        if row["kind"] == "failed":  # a hang or a death is caught; a compile error is no trial
            return Outcome(BROKEN if "could not be compiled" in row["reason"] else CAUGHT, f"failed: {row['reason']}")
    if said and all(row["kind"] == "measurement" for row in said):
        return Outcome(PASSED, f"{said[-1]['seconds'][0] * 1e6:.3g} us, {said[-1]['launches']} launches")
    return Outcome(BROKEN, (done.stderr or done.stdout or "no row").strip().splitlines()[-1])


def reason(row: Mapping[str, object]) -> str:
    from collbench.runfile.schema import to_result

    result = to_result(row)
    return result.wrong if result else "no result"


def tried(mutant: Mutant, folder: Path, cache: Path) -> Outcome:
    """Copy the package, write the fault, and run the command."""
    with copied(folder, mutant) as place:
        return carried_out(place, mutant.trial, cache)
