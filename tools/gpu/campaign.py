"""`make gpu-campaign`: every stage of stages.toml, in order of value, within the time of a lent GPU.

Each stage is a child process with a time limit.  Its log and record are on disk before the next begins, and
`summary.md` has all outcomes so far.  The same command, given again, continues with the stages that were never begun
with these sources; then it repeats failures, and at last stages that passed.

Exit status: 0 all passed or are not possible here; 1 something failed; 2 no GPU or a wrong setting; 3 nothing failed,
but stages are left.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import NoReturn

from collbench.errors import CollbenchError, unknown
from collbench.platforms.gpu import probe
from tools import ROOT
from tools.gpu import said
from tools.gpu.stages import STAGES, Stage

FOLDER = Path("results", "runs", "gpu-campaign")
BUDGET = 720.0  # seconds, of a quarter of an hour
GRACE = 8.0  # seconds between SIGINT, after which a run file gets its end, and SIGKILL
PAGE, RECORD, LOG, STATE, KERNELS = "summary.md", "result.json", "log.txt", "state", "kernel-cache"
PASSED, FAILED, TIMED_OUT, SKIPPED, BEGUN = "passed", "failed", "timed out", "not possible here", "cut off"
LAST = 3  # lines shown of a log without numbers
LEFT = 3  # the exit status where nothing failed and stages are left
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal that ends the campaign."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a stage; BEGUN until it has ended."""

    outcome: str
    sources: str  # a digest of the tested sources
    seconds: float = 0.0
    status: int | None = None
    lines: tuple[str, ...] = ()


@dataclass
class Campaign:
    """The selected stages, and the time and place for them."""

    folder: Path
    stages: Sequence[Stage]
    budget: float
    gpus: int

    def run(self) -> None:
        """Carry out one stage after the other while there is time."""
        start = time.monotonic()
        for stage in self.order():
            left = self.budget - GRACE - (time.monotonic() - start)
            if lacks := self.lacks(stage):
                self.save(stage, Outcome(SKIPPED, sources(), lines=(f"needs {lacks}",)))
            elif stage.limit > left:
                print(f"\n{stage.name}: not begun, it may take {stage.limit} s, and {left:.0f} s are left", flush=True)
            else:
                print(f"\n{stage.name}: {stage.shows}", flush=True)
                self.carry_out(stage)
            (self.folder / PAGE).write_text(self.page(), encoding="utf-8")

    def lacks(self, stage: Stage) -> str:
        """Return what a stage needs and the machine lacks."""
        if stage.gpus > self.gpus:
            return f"{stage.gpus} GPUs"
        return stage.package if stage.package and not find_spec(stage.package) else ""

    def order(self) -> list[Stage]:
        """Return stages in order: never begun with these sources, not passed, passed; a hang takes no others' time."""
        ranks = {PASSED: 3, SKIPPED: 2}

        def rank(stage: Stage) -> int:
            outcome = self.load(stage)
            return ranks.get(outcome.outcome, 1) if outcome and outcome.sources == sources() else 0

        return sorted(self.stages, key=rank)

    def carry_out(self, stage: Stage) -> None:
        """Run a stage in an empty folder; its record says that it was begun until it says how it ended."""
        folder = self.folder / stage.name
        shutil.rmtree(folder, ignore_errors=True)
        self.save(stage, Outcome(BEGUN, sources()))
        program, *words = (word.format(folder=folder.absolute()) for word in stage.command)
        module = program if program == "collbench" else f"tools.gpu.{program}"
        start = time.monotonic()
        with (folder / LOG).open("wb") as log:
            command = [sys.executable, "-m", module, *words]
            status = in_time(command, stage.limit, log.fileno(), self.environment(stage))
        seconds, text = time.monotonic() - start, (folder / LOG).read_text(encoding="utf-8", errors="replace")
        outcome = {None: TIMED_OUT, said.GOOD: PASSED, said.SKIPPED: SKIPPED}.get(status, FAILED)
        done = Outcome(outcome, sources(), round(seconds, 1), status, tuple(shown(text, outcome)))
        self.save(stage, done)
        print(f"{stage.name}: {outcome} after {seconds:.0f} s", *done.lines, sep="\n  ", flush=True)

    def environment(self, stage: Stage) -> dict[str, str]:
        """Return the variables of a stage: shared folders, and a single GPU if that is enough."""
        first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        folders = {"COLLBENCH_STATE": str((self.folder / STATE).absolute())}
        folders["CUPY_CACHE_DIR"] = os.environ.get("CUPY_CACHE_DIR") or str((self.folder / KERNELS).absolute())
        only = {"CUDA_VISIBLE_DEVICES": first} if stage.gpus == 1 else {}
        return {**os.environ, "PYTHONUNBUFFERED": "1", **folders, **only}

    def save(self, stage: Stage, outcome: Outcome) -> None:
        path = self.folder / stage.name / RECORD
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{RECORD}")
        scratch.write_text(json.dumps(asdict(outcome), indent=1) + "\n", encoding="utf-8")
        scratch.replace(path)

    def load(self, stage: Stage) -> Outcome | None:
        path = self.folder / stage.name / RECORD
        return Outcome(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    def page(self) -> str:
        """Return a page of all stages with their outcomes, failures first."""
        lines = ["# GPU campaign"]
        known = {stage: outcome for stage in STAGES if (outcome := self.load(stage))}
        for heading in (FAILED, TIMED_OUT, BEGUN, PASSED, SKIPPED):
            named = {stage: outcome for stage, outcome in known.items() if outcome.outcome == heading}
            if named:
                lines += ["", f"## {heading.capitalize()} ({len(named)})", ""]
            for stage, outcome in named.items():
                lines.append(f"- **{stage.name}** ({outcome.seconds:.0f} s): {stage.shows} (`{stage.name}/{LOG}`)")
                lines += [f"  - {line}" for line in outcome.lines]
        left = [stage.name for stage in self.stages if stage not in known]
        return "\n".join([*lines, "", f"Left: {', '.join(left) or 'nothing'}."]) + "\n"

    def status(self) -> int:
        outcomes = {outcome.outcome if outcome else "" for outcome in map(self.load, self.stages)}
        if outcomes & {FAILED, TIMED_OUT}:
            return said.BAD
        return said.GOOD if outcomes <= {PASSED, SKIPPED} else LEFT


def in_time(command: Sequence[str], limit: float, log: int, environment: dict[str, str]) -> int | None:
    """Return the exit status of a command, or None after the time limit; its process group is killed."""
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=ROOT, start_new_session=True
    )
    try:
        return child.wait(limit)
    except subprocess.TimeoutExpired:
        # An interrupted run writes the end of its file, and its rows count.
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def shown(log: str, outcome: str) -> list[str]:
    """Return the shown part of a log: its numbers and reasons, or else its last lines."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    numbers = [line.removeprefix(said.KEY) for line in lines if line.startswith(said.KEY)]
    reasons = [] if outcome == PASSED else [line for line in lines if line.startswith((said.WRONG, said.SKIP))][:LAST]
    return reasons + numbers or lines[-LAST:]


@cache
def sources() -> str:
    """Return a digest of the tested sources and of their programs; a lent machine may lack git."""
    digest = hashlib.sha256()
    for folder in ("collbench", "kernels", "tools/gpu"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".cu", ".cuh", ".toml"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def chosen_stages(words: Sequence[str]) -> list[Stage]:
    """Return the stages with these names; `tests` stands for all tests, and no name for all stages."""
    for word in words:
        if word not in ("tests", *(stage.name for stage in STAGES)):
            raise unknown("stage", word, ["tests", *(stage.name for stage in STAGES)])
    return [stage for stage in STAGES if not words or stage.name in words or (stage.tests and "tests" in words)]


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)  # one signal is enough
    raise Stopped(number)


def main(arguments: Sequence[str] | None = None) -> int:
    environ = os.environ
    parser = argparse.ArgumentParser(prog="tools.gpu.campaign", description="All that a lent GPU is to show.")
    parser.add_argument("--folder", type=Path, default=Path(environ.get("CAMPAIGN") or FOLDER), help="of all results")
    parser.add_argument("--stage", default=environ.get("STAGE", ""), help="names with commas between; default: all")
    parser.add_argument("--budget", type=float, default=environ.get("BUDGET") or BUDGET, help="seconds for all")
    chosen = parser.parse_args(arguments)
    try:
        stages = chosen_stages([word.strip() for word in chosen.stage.split(",") if word.strip()])
    except CollbenchError as error:
        print(f"collbench: error: {error}", file=sys.stderr)
        return error.exit_status
    gpus = len(probe.memories())
    if not gpus:
        return said.no_gpu("run")
    campaign, status = Campaign(chosen.folder, stages, chosen.budget, gpus), None
    chosen.folder.mkdir(parents=True, exist_ok=True)
    try:
        for number in SIGNALS:
            signal.signal(number, _stop)
        campaign.run()
    except Stopped as stopped:
        status = 128 + stopped.args[0]
    (chosen.folder / PAGE).write_text(campaign.page(), encoding="utf-8")
    print(f"\n{campaign.page()}\n{chosen.folder / PAGE}", flush=True)
    return campaign.status() if status is None else status


if __name__ == "__main__":
    sys.exit(main())
