"""`make gpu-campaign`: every stage of stages.py, in order of value, within the time that a command on a lent GPU has.

Each stage is a child of its own that is ended in time (bounded.py), and its log and result are on disk before the next
begins (page.py), and, packed, in the folder that is brought back, if there is one (archives.py).  The same command,
given again, does what is left: stages that were never begun with these sources, then those that failed, then those that
said that they cannot, and at last, as far as the time goes, those that have passed.  One page says at the end what came
of all.

Exit status 0 all passed or are not possible here, 1 something failed, 2 no GPU, 3 nothing failed but stages are left:
give the command again.
"""

import argparse
import ctypes
import hashlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import FrameType
from typing import NoReturn

from collbench.errors import CollbenchError, PlatformError
from collbench.platforms.gpu import cuda, probe
from tools import ROOT
from tools.gpu import bounded, page, said, scale
from tools.gpu.archives import Back
from tools.gpu.page import Outcome
from tools.gpu.stages import CACHE, STAGES, Stage, choose

RUNS = Path("results", "runs")
FOLDER = RUNS / "gpu-campaign"  # without a date: who goes on after midnight goes on there
EARLIER = "earlier"  # the folder of what a stage left the last time
BUDGET = 720.0  # seconds, of the quarter of an hour that a machine is lent for
RESERVE = bounded.GRACE + 3.0  # seconds of them to end what will not end, and to write the page
SEEN = 8_000  # characters of the end of what a command prints that surely reach whoever started it
SOURCES = (".py", ".cu", ".cuh", ".toml")
LEFT = 3  # the exit status where nothing failed and stages are left
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal that ends the campaign."""


@dataclass
class Campaign:
    """The stages that are asked for, and the time and place for them."""

    folder: Path
    stages: Sequence[Stage]
    budget: float
    limit: float  # seconds, the most for any stage
    package: str = __package__  # of the programs
    gpus: int = 1  # on this machine
    out: Path | None = None  # the folder that is brought back
    start: float = field(default_factory=time.monotonic)
    why_left: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._back = Back(self.out, self.folder, kernel_cache())

    def run(self) -> None:
        """One stage after the other, as far as the time goes; page and archives are there after every one."""
        for stage in self._order():
            self._run_in_time(stage)
            self.write()

    def write(self) -> None:
        """The page, and what is brought back."""
        page.write_page(self.folder, self.page())
        self._back.bring()

    def _run_in_time(self, stage: Stage) -> None:
        """Run a stage if that can be here, and if it may take as long as is left."""
        if stage.gpus > self.gpus:
            why = _too_few(self.gpus)
            outcome = Outcome(stage.name, page.SKIPPED, stage.command, _now(), reason=why, sources=sources())
            page.save(self.folder, stage, outcome)
            return
        needed, left = self._limit(stage), self.budget - RESERVE - (time.monotonic() - self.start)
        if needed > left:
            self.why_left[stage.name] = f"it may take {needed:.0f} s, and {max(left, 0):.0f} s were left"
            print(f"\n{stage.name}: not begun, {self.why_left[stage.name]}", flush=True)
            return
        print(f"\n{stage.name}: {stage.shows} (at most {needed:.0f} s, {left:.0f} s are left)", flush=True)
        self._carry_out(stage, needed)

    def _order(self) -> list[Stage]:
        """What was never begun, then what did not pass: what hangs must not take the others' time again.

        Then come those that said that they cannot, since most of them will say it again, and then those that passed.
        What came of other sources is as if it had never begun.
        """
        known = page.load(self.folder, self.stages)
        ranks = {page.SKIPPED: 2, page.PASSED: 3}

        def rank(stage: Stage) -> int:
            outcome = known.get(stage.name)
            return ranks.get(outcome.outcome, 1) if outcome and outcome.sources == sources() else 0

        return sorted(self.stages, key=rank)

    def _limit(self, stage: Stage) -> float:
        return min(stage.limit, self.limit)

    def _carry_out(self, stage: Stage, limit: float) -> None:
        """Run a stage in an empty folder; its record says that it was begun until it says how it ended."""
        folder = page.folder_of(self.folder, stage)
        self._put_aside(folder)
        command = tuple(word.format(folder=folder) for word in stage.command)
        begun = Outcome(stage.name, page.BEGUN, command, _now(), sources=sources())
        page.save(self.folder, stage, replace(begun, reason="the campaign was ended while it ran"))
        program = [sys.executable, "-m", f"{self.package}.{command[0]}", *command[1:]]
        log = folder / page.LOG
        ended = bounded.run(program, log, limit, self._environment(), show)
        outcome = judged(begun, ended, log.read_text(encoding="utf-8", errors="replace"))
        page.save(self.folder, stage, outcome)
        print(f"{stage.name}: {outcome.outcome} after {ended.seconds:.0f} s {outcome.reason}".rstrip(), flush=True)

    def _put_aside(self, folder: Path) -> None:
        """What a stage left before: half a run is a result too, until there is another."""
        if folder.exists():
            earlier = self.folder / EARLIER / folder.name
            shutil.rmtree(earlier, ignore_errors=True)
            earlier.parent.mkdir(exist_ok=True)
            folder.rename(earlier)

    def _environment(self) -> Mapping[str, str]:
        """That of this command, unbuffered, with a kernel cache that stages share and later campaigns too."""
        return {**os.environ, "PYTHONUNBUFFERED": "1", CACHE: str(kernel_cache())}

    def page(self) -> str:
        """What came of the stages that were asked for, now or before, as far as they have come."""
        return page.page(*self._known(), self.why_left)

    def what_went_wrong(self) -> str:
        """The part of the page that says it."""
        return page.wrong(*self._known())

    def _known(self) -> tuple[list[Stage], dict[str, Outcome]]:
        """The stages that were asked for, now or before, and what came of them."""
        known, asked = page.load(self.folder, STAGES), {stage.name for stage in self.stages}
        return [one for one in STAGES if one.name in asked or one.name in known], known

    def status(self) -> int:
        """The exit status that the records come to."""
        known = page.load(self.folder, self.stages)
        outcomes = [_outcome(known, stage) for stage in self.stages]
        if page.FAILED in outcomes or page.TIMED_OUT in outcomes:
            return said.BAD
        return said.GOOD if {*outcomes} <= {page.PASSED, page.SKIPPED} else LEFT


def kernel_cache() -> Path:
    """Where compiled kernels are kept."""
    return Path(os.environ.get(CACHE) or RUNS / "kernel-cache").absolute()


@cache
def sources() -> str:
    """A digest of what stages try and of their programs; a lent machine may have no git."""
    digest = hashlib.sha256()
    for folder in ("collbench", "kernels", "tools"):
        for path in sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in SOURCES):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def judged(begun: Outcome, ended: bounded.Ended, log: str) -> Outcome:
    """What a stage's end and log come to."""
    done = replace(begun, seconds=round(ended.seconds, 2), status=ended.status, numbers=tuple(said.keys(log)))
    if ended.status == said.GOOD:
        return replace(done, outcome=page.PASSED)
    if ended.status == said.SKIPPED:
        return replace(done, outcome=page.SKIPPED, reason=said.why_skipped(log))
    if ended.status is None:
        return replace(
            done, outcome=page.TIMED_OUT, reason=f"no end after {ended.seconds:.0f} s; it had come to: {said.last(log)}"
        )
    return replace(done, outcome=page.FAILED, reason=f"exit status {ended.status}: {said.reason(log)}")


def show(text: str) -> None:
    """What a stage prints, as it comes."""
    print(text, end="", flush=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _too_few(gpus: int) -> str:
    return "there is one GPU only" if gpus == 1 else f"there are {gpus} GPUs only"


def _outcome(known: Mapping[str, Outcome], stage: Stage) -> str:
    return known[stage.name].outcome if stage.name in known else ""


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)  # once is enough: what is under way is being ended
    raise Stopped(number)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.gpu.campaign", description="All that a lent GPU is to show.")
    given = os.environ.get
    folder, out = Path(given("CAMPAIGN") or FOLDER), Path(given("OUT", "")) if given("OUT") else None
    parser.add_argument("--folder", type=Path, default=folder, help="of all results, made or gone on with")
    parser.add_argument("--out", type=Path, default=out, help="folder for the page and archives of the results")
    parser.add_argument("--stage", default=given("STAGE", ""), help="names or parts with commas between; default: all")
    parser.add_argument("--budget", type=float, default=given("BUDGET") or BUDGET, help="seconds for all")
    parser.add_argument("--limit", type=float, default=given("LIMIT") or 1e9, help="seconds for any stage, at most")
    chosen = parser.parse_args(arguments)
    names = [word.strip() for word in chosen.stage.split(",") if word.strip()]
    start = time.monotonic()
    try:
        scale.name()
        stages, gpus = choose(names) if names else list(STAGES), len(probe.memories())
        if not gpus:
            return said.no_gpu("run")
        _refuse_a_wrong_nccl()
    except CollbenchError as error:
        print(f"collbench: error: {error}", file=sys.stderr)
        return error.exit_status
    return carried_out(
        Campaign(chosen.folder, stages, chosen.budget, chosen.limit, gpus=gpus, out=chosen.out, start=start)
    )


def _refuse_a_wrong_nccl() -> None:
    """PlatformError if the NCCL that is named cannot be loaded: stage after stage would say so."""
    if library := os.environ.get(cuda.NCCL_LIBRARY):
        try:
            ctypes.CDLL(library)
        except OSError as error:
            raise PlatformError(f"{cuda.NCCL_LIBRARY}={library} cannot be loaded: {error}") from error


def carried_out(campaign: Campaign) -> int:
    """Run it, and show its page however it ends."""
    status = None
    try:
        for number in SIGNALS:
            signal.signal(number, _stop)
        campaign.run()
    except Stopped as stopped:
        status = 128 + stopped.args[0]
    campaign.write()
    text = campaign.page()
    again = campaign.what_went_wrong() if len(text) > SEEN else ""
    print(f"\n{text}\n{again}{campaign.folder / page.PAGE}", flush=True)
    return campaign.status() if status is None else status


if __name__ == "__main__":
    sys.exit(main())
