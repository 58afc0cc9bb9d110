"""Faults of the plain Python, each tried by the tests: `python -m tools.mutants.of_python [WORD ...]`.

The checkout is copied once; each fault in turn replaces one text of one file, and the tests named with it must fail.
Faults were chosen by reading the code, not the tests.  `--checkout FOLDER` tries the tests of another checkout, with
its own environment, so that two states of the tests can be compared; `--tests FOLDER ...` tries other tests.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 900  # that one run of tests may take
CAUGHT, SURVIVED, GONE, BROKEN = "caught", "SURVIVED", "GONE", "BROKEN"


@dataclass(frozen=True)
class Fault:
    """A text that occurs once in a file of collbench/, what stands there instead, and the tests that should fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def of(part: str, tests: str, file: str, *faults: tuple[str, str, str]) -> list[Fault]:
    """Faults (name, old text, new text) of one file."""
    return [Fault(f"{part}: {name}", f"collbench/{file}", old, new, tuple(tests.split())) for name, old, new in faults]


MODEL = (
    *of(
        "model",
        "tests/model",
        "model/equation.py",
        (
            "network terms calibrated by the factor of latency",
            "self.network * calibration.network",
            "self.network * calibration.latency",
        ),
        (
            "calibration moves what the hardware can carry",
            "np.minimum(self.rate * calibration.rate, self.limit)",
            "np.minimum(self.rate, self.limit) * calibration.rate",
        ),
        ("filling grows with bytes, not their root", "np.sqrt(transferring)", "transferring"),
    ),
    *of(
        "model",
        "tests/model",
        "model/nccl_terms.py",
        (
            "all ranks instead of nodes share a node's cards",
            "system.nics.per_node / schedule.sent(system.nodes)",
            "system.nics.per_node / schedule.sent(system.ranks)",
        ),
        (
            "a tree's port with factor n instead of n-1",
            "sent = 2 * (system.gpus - 1) / system.gpus",
            "sent = 2 * system.gpus / system.gpus",
        ),
        ("a switch that adds carries 1 - 1/n", "sent = 1 + 1 / gpus", "sent = 1 - 1 / gpus"),
    ),
    *of(
        "model",
        "tests/model",
        "model/schedule.py",
        ("a ring of n steps", "max(1, self.rounds) * (ranks - 1)", "max(1, self.rounds) * ranks"),
    ),
    *of(
        "model",
        "tests/model",
        "model/nccl_terms.py",
        ("all but the own rank are on other nodes", "(ranks - gpus) / ranks", "(ranks - 1) / ranks"),
    ),
    *of(
        "model",
        "tests/model",
        "model/steps.py",
        (
            "a bucket goes out before it is computed",
            "slowed * place / len(buckets)",
            "slowed * (place - 1) / len(buckets)",
        ),
        ("the last bucket slows computing too", "sum(buckets[:-1])", "sum(buckets)"),
    ),
    *of(
        "model",
        "tests/model",
        "model/error_bands.py",
        ("a boundary belongs to the size below", "int(nbytes >= SMALL)", "int(nbytes > SMALL)"),
    ),
    *of(
        "model",
        "tests/model",
        "model/constants.py",
        ("one rendezvous for all hops", '(hops * constants["rendezvous"] if', '(constants["rendezvous"] if'),
    ),
    *of(
        "model",
        "tests/model",
        "model/nccl_tuner.py",
        ("one level of a tree too many", "self.nodes.bit_length() - 1", "self.nodes.bit_length()"),
        ("a closing hop that is not counted", "counted = hops + closing", "counted = hops"),
    ),
    *of(
        "model",
        "tests/model",
        "model/network.py",
        (
            "a link at half its rate is down",
            "lanes[group, place * level.paths + path] *= fault.left",
            "lanes[group, place * level.paths + path] = 0",
        ),
    ),
)

RUNNER = (
    *of(
        "sampling",
        "tests/measure/test_sampling.py",
        "measure/sampling.py",
        (
            "the slower of two looks counts",
            "elapsed = min(_steady(prepared, platform, launches) for _ in range(2)) * launches",
            "elapsed = max(_steady(prepared, platform, launches) for _ in range(2)) * launches",
        ),
        ("no limit on launches", "min(_MORE * launches, _MOST_LAUNCHES)", "_MORE * launches"),
        ("disturbed far too often", "_region(platform, sampling) / _MORE", "_region(platform, sampling) * _MORE"),
        (
            "samples of all parts together",
            "self.samples.append(seconds / self._subject.case.collective.parts)",
            "self.samples.append(seconds)",
        ),
        ("the closing sample is one too many", "taken = len(samples[0]) + 1", "taken = len(samples[0])"),
        (
            "one precise candidate is enough",
            "return all(relative_halfwidth(of_candidate)",
            "return any(relative_halfwidth(of_candidate)",
        ),
        ("a few lucky samples are enough", "sampling.budget / 10 or taken % 8", "sampling.budget / 10 and taken % 8"),
        ("implementations in the same order every round", "        order.reverse()\n", "        order.sort(key=id)\n"),
        ("the closing check of one launch is made out of place", "if case.in_place:", "if not case.in_place:"),
    ),
    *of(
        "checks",
        "tests/measure/test_sampling.py",
        "measure/checks.py",
        ("latency of a part, not of the operation", "whole = seconds * case.collective.parts", "whole = seconds"),
        (
            "one rank in place copies nothing: forgotten",
            "(case.collective.sharded or case.ranks == 1)",
            "case.collective.sharded",
        ),
        (
            "seconds of one operation against those of few",
            "long = min(long, platform.clock.time(prepared, many) * many)",
            "long = min(long, platform.clock.time(prepared, many))",
        ),
        ("a majority of all instead of a half", "2 * shorter - number >=", "shorter - number >="),
    ),
    *of(
        "runner",
        "tests/commands/step/test_steps_in_turn.py",
        "measure/steps.py",
        ("a step's seconds for its series'", "return series.seconds * series.steps", "return series.seconds"),
        ("paced only if all series were", "2 * sum(paced) >", "sum(paced) >="),
        (
            "calibration takes a step for its series",
            "elapsed = min(tried) * steps",
            "elapsed = min(tried)",
        ),
        (
            "chains that start anew at the last check",
            "taken = self._take(self._steps, phase)",
            "taken = products.reset() or self._take(self._steps, phase)",
        ),
    ),
    *of(
        "interleave",
        "tests/measure/test_interleave.py",
        "measure/interleave.py",
        ("two more rounds that take as long as one", "last + 2 * (last - before) > end", "last + last - before > end"),
    ),
)

COMPARE = (
    *of(
        "compare",
        "tests/analysis/compare",
        "stats.py",
        ("a margin that is not a ratio's", "1 / (1 + margin) <= self.low", "1 - margin <= self.low"),
    ),
    *of(
        "compare",
        "tests/analysis/compare",
        "analysis/bootstrap.py",
        (
            "the errors of both sides swapped",
            "for error in (self.below, self.above)",
            "for error in (self.above, self.below)",
        ),
        (
            "means for medians",
            "math.log(median(new) / median(base))",
            "math.log(float(np.mean(new)) / float(np.mean(base)))",
        ),
        ("one-sided confidence", "student(0.5 + confidence / 2, freedom)", "student(confidence, freedom)"),
        (
            "freedom with the mean not deducted",
            "sum(len(row.logs) - 1 for row in rows)",
            "sum(len(row.logs) for row in rows)",
        ),
        ("half of the width for all of it", "((high - low) / 3.92) ** 2", "((high - low) / 1.96) ** 2"),
    ),
    *of(
        "compare",
        "tests/analysis/compare",
        "analysis/compare.py",
        (
            "a regression within the margin",
            "return self.verdict is Verdict.SLOWER and self.ratio > 1 + margin",
            "return self.verdict is Verdict.SLOWER",
        ),
        ("more looks than sizes", "* _ALIKE / len(curve)", "/ _ALIKE / len(curve)"),
        ("what sizes share made less by their number", "math.hypot(fmean(shared), ", "math.hypot(0.0, "),
        ("a row the same by the interval of all", "if alone.surely_level(margin)", "if ratio.surely_level(margin)"),
    ),
    *of(
        "compare",
        "tests/analysis/compare",
        "analysis/compare.py",
        ("curves not counted among the intervals", "max(1, len(known) + len(curves))", "max(1, len(known))"),
    ),
    *of(
        "compare",
        "tests/analysis/compare",
        "analysis/bootstrap.py",
        ("an outlier that counts as scatter", "if distance > far}", "if distance > 1000 * far}"),
        ("medians alone, by which swings are calm", "max(distances) ** 2", "distances[0] ** 2"),
        ("errors of a middle of two counted as one", "right.error**2) / 4", "right.error**2) / 2"),
        ("a window with one size missing", "place + NEAR + 1]", "place + NEAR]"),
    ),
    *of(
        "compare",
        "tests/analysis/compare",
        "analysis/gate.py",
        ("nothing to compare passes", "comparison.hidden or not comparison.rows for", "comparison.hidden for"),
    ),
    *of(
        "compare",
        "tests/analysis/compare",
        "analysis/bootstrap.py",
        ("resamples of few blocks stray too little", " * math.sqrt(blocks / (blocks - 1))", ""),
    ),
)

DIAGNOSE = (
    *of(
        "diagnose",
        "tests/analysis/diagnose",
        "analysis/diagnose.py",
        ("deviations without their spread", "stretch.off / stretch.spread", "stretch.off"),
        ("what is known worse counts more", "weights = 1 / np.diag(inside)", "weights = np.diag(inside)"),
        ("one size too many wanted", "chosen.sum() >= FEWEST", "chosen.sum() > FEWEST"),
    ),
    *of(
        "diagnose",
        "tests/analysis/diagnose",
        "analysis/diagnose.py",
        ("a likelihood without the number of sizes", "(FREEDOM + len(off)) *", "FREEDOM *"),
        ("a deviation for its variance", "ANYTHING**2 * together", "ANYTHING * together"),
        ("a distance without the mean", "off = smoothed(logs) - errors.mean", "off = smoothed(logs)"),
    ),
    *of(
        "diagnose",
        "tests/analysis/diagnose",
        "analysis/diagnose.py",
        (
            "slow against the typical time, not the band",
            "row.typical > other.high for",
            "row.typical > other.seconds for",
        ),
        ("a sum of neighbours for their mean", "(logs[:-2] + logs[2:]) / 2", "(logs[:-2] + logs[2:])"),
        ("a hypothesis without its prior", "math.log(hypothesis.prior * max(", "math.log(max("),
        ("many variants weigh more", " - math.log(len(likelihoods))", ""),
        (
            "a constant with the wrong sign",
            "(times - healthy)[small]",
            "(healthy - times)[small]",
        ),
        (
            "reasons less likely than something else",
            "max(0.0, ranked[0].weight - HARDLY)",
            "(ranked[0].weight - HARDLY)",
        ),
    ),
    *of(
        "diagnose",
        "tests/analysis/diagnose",
        "analysis/diagnose.py",
        ("one size too many wanted of a curve", "few = len(rows) < FEWEST", "few = len(rows) <= FEWEST"),
    ),
    *of(
        "diagnose",
        "tests/analysis/diagnose",
        "analysis/hypotheses.py",
        ("only one card, never half of them", "counts = {1, system.nics.per_node // 2}", "counts = {1}"),
        (
            "a slot that keeps its rate",
            "gpu_rate=system.gpu_rate / 2, pcie_lanes",
            "gpu_rate=system.gpu_rate, pcie_lanes",
        ),
    ),
)

PLANNER = (
    *of(
        "planner",
        "tests/planner",
        "planner/search.py",
        ("utilisation of all GPUs as of one", " / seconds / layout.gpus / ", " / seconds / "),
        ("the slow edge for the fast one", "seconds - error(LOW, spread)", "seconds - error(LOW, 1 / spread)"),
    ),
    *of(
        "planner",
        "tests/planner",
        "planner/step.py",
        ("a bubble of p micro-batches", "return (pipeline - 1 - shorter)", "return (pipeline - shorter)"),
        ("filled in one direction", "return 2 * (pipeline - 1) * stage_once", "return (pipeline - 1) * stage_once"),
    ),
    *of(
        "planner",
        "tests/planner",
        "planner/communication.py",
        (
            "keys of one GPU instead of all",
            "nbytes = 2 * element * tokens * context * keys / tensor",
            "nbytes = 2 * element * tokens * keys / tensor",
        ),
        (
            "recomputation does not hide anything",
            "longest, both = layer_backward + layer_again,",
            "longest, both = layer_backward,",
        ),
        ("the first layer hides gradients too", " * (1 - 1 / own_layers), 0)", ", 0)"),
        (
            "gradients scattered at the width of weights",
            '"reducescatter", layer_gathered * gradient_bytes / element',
            '"reducescatter", layer_gathered',
        ),
    ),
    *of(
        "planner",
        "tests/planner",
        "planner/memory.py",
        (
            "more micro-batches in flight than there are",
            "return minimum(micro_batches, pipeline",
            "return maximum(micro_batches, pipeline",
        ),
        (
            "weights sharded from level 2 on",
            "return element * where(shard >= 3, share, whole)",
            "return element * where(shard >= 2, share, whole)",
        ),
        (
            "experts sharded among all replicas",
            "return maximum(1, shards / expert)",
            "return maximum(1, shards)",
        ),
    ),
    *of(
        "planner",
        "tests/planner",
        "planner/compute.py",
        (
            "the fullest stage without its chunks",
            "ceil(layers / (pipeline * chunks)) * chunks",
            "ceil(layers / pipeline)",
        ),
        ("fused attention takes twice as much", "where(fused, 0.5, 1)", "where(fused, 1, 0.5)"),
    ),
)

FORMATS = (
    *of(
        "formats",
        "tests/formats",
        "formats/nccl_tests_log.py",
        ("milliseconds of 2015 read as microseconds", "1e-3 if milliseconds else 1e-6", "1e-6"),
    ),
    *of(
        "formats",
        "tests/formats",
        "formats/nccl_tests_text.py",
        (
            "an error behind a star is none",
            'error.endswith("*"):\n        return 1',
            'error.endswith("*"):\n        return 0',
        ),
        ("any count cuts a size", "if share and nbytes % share == 0 else None", "if share else None"),
        ("ranks counted from 1", "max(max(numbers) + 1, per_process)", "max(max(numbers), per_process)"),
        ("a table of one place is always out of place", "place == 1 or columns.in_place_first", "place == 1"),
        ("columns do not matter", "if collective and _fits(collective, section, ranks):", "if collective:"),
    ),
    *of(
        "formats",
        "tests/formats",
        "formats/imported.py",
        ("any bandwidth fits", "if self.allows(ranks):", "if True:"),
        ("no row contradicts itself", "if ranks not in fitting:", "if False:"),
        ("a row of no time is read", "if not row.seconds and not row.wrong:", "if False:"),
    ),
    *of(
        "formats",
        "tests/formats",
        "formats/source.py",
        ("rounding three times as coarse", "Decimal(5).scaleb(", "Decimal(15).scaleb("),
    ),
    *of(
        "formats",
        "tests/formats",
        "formats/nccl_tests_write.py",
        ("version codes of 2.9 in the old way", "(major, minor) < (2, 9)", "(major, minor) <= (2, 9)"),
        ("root 0 where there is none", "return case.root if case.collective.rooted else -1", "return case.root"),
    ),
    *of(
        "formats",
        "tests/formats",
        "formats/osu.py",
        ("a rank's message for the whole array", "size * (ranks if test.per_rank else 1)", "size"),
        ("GB/s for MB/s", "seconds = nbytes / (rate * 1e6)", "seconds = nbytes / (rate * 1e9)"),
    ),
    *of(
        "formats",
        "tests/formats",
        "formats/exported.py",
        (
            "the shortest sample for the mean",
            "return fmean(result.times) if result.times",
            "return min(result.times) if result.times",
        ),
        ("GiB/s for GB/s", "mean_seconds(result) / 1e9", "mean_seconds(result) / 2**30"),
    ),
    *of(
        "formats",
        "tests/formats",
        "formats/rccl.py",
        ("GPUs of a rank not counted", 'ranks *= whole(row.get("gpusperrank", "")) or 1', "ranks *= 1"),
    ),
    *of(
        "formats",
        "tests/formats tests/runfile",
        "runfile/flat.py",
        ("both ends of a band swapped", "low, high = result.band", "high, low = result.band"),
    ),
)

CHECK = (
    *of(
        "check",
        "tests/analysis/check tests/commands/check/test_library.py",
        "analysis/sequential.py",
        ("false alarms not shared by sizes", "alarm = self.alarm / self.sizes", "alarm = self.alarm"),
        ("an expectation without an error", "(variance + error**2)", "variance"),
        ("rounds of the reference do not count", "sum(1 / count for count in rounds)", "1 / rounds[0]"),
    ),
    *of(
        "check",
        "tests/analysis/check tests/commands/check/test_library.py",
        "analysis/expectations.py",
        ("states of the machine taken for one", "abs(math.log(first / second)) < SAME_STATE", "True"),
        ("disturbed rows are a measure", "row.right and not row.disturbed and", "row.right and"),
        ("floors without tolerance", "(1 + self.lower) * 1e9", "1e9"),
        ("copies of the row do not count", "if row.floor:\n        least", "if False:\n        least"),
    ),
    *of(
        "check",
        "tests/analysis/check tests/commands/check/test_library.py",
        "analysis/check.py",
        ("disturbed rounds count", "None if row.disturbed else expectation.of(row)", "expectation.of(row)"),
        ("undecided sizes that seem slow are no matter", "if leaning or (undecided", "if (undecided"),
        (
            "a wrong result is no failure",
            "if self.correctness.faults:\n            return Status.FAIL",
            "if False:\n            return Status.FAIL",
        ),
    ),
    *of(
        "check",
        "tests/commands/check/test_library.py",
        "api/checking.py",
        ("slow runs join the baseline", "(unknown or result.status is Status.OK)", "True"),
        ("a baseline without end", "folder if len(earlier) < GOOD_RUNS else None", "folder"),
        ("slow at once", "return result.rounds >= SURE", "return True"),
        (
            "wrong results are measured on",
            "if result.correctness.faults:\n        return True",
            "if False:\n        return True",
        ),
    ),
)
FAULTS = (*MODEL, *RUNNER, *COMPARE, *DIAGNOSE, *PLANNER, *FORMATS, *CHECK)


class Trials:
    """A copy of a checkout, in which faults are tried one after the other."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        python = checkout / ".venv" / "bin" / "python"
        self.python = str(python if python.exists() else sys.executable)
        self.place = folder / "checkout"
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(checkout, self.place, ignore=ignored, symlinks=True)
        # Neither size nor time of a file tells that it has a fault, so compiled files are held against the source.
        command = [self.python, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "collbench", "tests"]
        subprocess.run(command, cwd=self.place, check=False)
        self._environment = os.environ | {
            "PYTHONPATH": str(self.place),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLLBENCH_CACHE": str(folder / "cache"),
        }
        marked = '"full: ' in (checkout / "pyproject.toml").read_text(encoding="utf-8")  # older tests know no such mark
        self._chosen = ["-m", "not full and not machine"] if marked else []
        self._failing: dict[tuple[str, ...], list[str]] = {}

    def named(self, tests: Sequence[str]) -> tuple[str, ...]:
        """The tests that are there; the folder of a file that is not."""
        there = (name if (self.place / name).exists() else str(Path(name).parent) for name in tests)
        return tuple(dict.fromkeys(there))

    def pytest(self, tests: Sequence[str], *options: str) -> tuple[int, str]:
        """Exit status and output; a run that does not end is ended, and counts as failed."""
        command = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *self._chosen]
        running = subprocess.Popen(
            [*command, *options, *tests],
            cwd=self.place,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = running.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
            return 1, f"no end within {SECONDS} s"
        return running.returncode, said

    def failing(self, tests: tuple[str, ...]) -> list[str]:
        """Options that leave out what fails without any fault."""
        if tests not in self._failing:
            status, said = self.pytest(tests)
            failed = sorted(set(re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)))
            if status > 1 or (status and not failed):
                raise SystemExit(f"these tests do not run as they are: {' '.join(tests)}\n{said[-2000:]}")
            for name in failed:
                tell(f"left out, fails without a fault: {name}")
            self._failing[tests] = [word for name in failed for word in ("--deselect", name)]
        return self._failing[tests]

    def tried(self, fault: Fault, tests: tuple[str, ...]) -> tuple[str, str]:
        """The verdict, and what was said."""
        file = self.place / fault.file
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        if (times := text.count(fault.old)) != 1:
            return GONE, f"{fault.file} holds {fault.old!r} {times} times, not once"
        left_out = self.failing(tests)
        file.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
        try:
            status, said = self.pytest(tests, "-x", *left_out)
        finally:
            file.write_text(text, encoding="utf-8")
        first = next(iter(re.findall(r"^(?:FAILED|ERROR) (.{1,120})", said, re.MULTILINE)), said.strip()[-120:])
        return {0: SURVIVED, 1: CAUGHT, 2: CAUGHT}.get(status, BROKEN), first if status else ""


def tell(line: str) -> None:
    """At once, whoever reads."""
    print(line, flush=True)


def outcomes(faults: Sequence[Fault], trials: Trials, tests: Sequence[str]) -> Iterator[str]:
    """The verdict of each, told as soon as it is known."""
    for fault in faults:
        began = time.monotonic()
        verdict, said = trials.tried(fault, trials.named(tests or fault.tests))
        tell(f"{verdict:8} {fault.name} ({fault.file}, {time.monotonic() - began:.0f} s){': ' if said else ''}{said}")
        yield verdict


def main() -> int:
    """Exit status 1 if a fault survives or cannot be tried."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants.of_python", description="Faults of plain Python.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="try those with this word in their name or file")
    parser.add_argument("--tests", nargs="+", default=(), metavar="FOLDER", help="run these instead of those named")
    parser.add_argument("--checkout", type=Path, default=ROOT, metavar="FOLDER", help="take code and tests from there")
    given = parser.parse_args()
    chosen = [one for one in FAULTS if not given.words or any(word in one.name + one.file for word in given.words)]
    with tempfile.TemporaryDirectory() as folder:
        counts = Counter(outcomes(chosen, Trials(given.checkout.resolve(), Path(folder)), given.tests))
    tell(f"{counts[CAUGHT]} of {len(chosen)} caught; " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items()))
    return int(counts[CAUGHT] < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
