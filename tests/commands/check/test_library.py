"""`collbench.check` from measuring to the verdict, with ranks whose times are made up."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest

import collbench
from collbench.analysis.diagnose import diagnose
from collbench.analysis.judgement import MOST_SIGHT, Sight, Word
from collbench.analysis.machine import Candidate, RunFacts
from collbench.cases import Case, Sampling
from collbench.commands.check import library
from collbench.commands.check.judge import CheckResult
from collbench.commands.check.library import GOOD_RUNS, LARGER, OF_A_BASELINE, SURE
from collbench.errors import CollbenchError, UsageError
from collbench.measure import interleave
from collbench.measure.protocol import WorkerHello
from collbench.measure.supervisor import Supervisor
from collbench.results import Failed, Measurement, Mismatch, Result
from collbench.results.disturbed import Scheduling
from collbench.results.facts import Note, Sharing
from collbench.runfile.schema import TopologyPart
from collbench.runfile.store import NAME, read
from collbench.topology.files import load

NEAR, FAR = 140e-9, 450e-9  # barriers of the two states of a made-up virtual machine


class Ranks(Supervisor):
    """Ranks in the supervisor's place, which are started for every round."""

    draw: ClassVar[np.random.Generator]
    started: ClassVar[int] = 0
    slow: ClassVar[Mapping[int, float]] = {}  # times as long, from that size in bytes on
    wrong: ClassVar[int | None] = None  # the size in bytes that is wrong
    hung: ClassVar[int | None] = None
    disturbed: ClassVar[bool] = False
    switches: ClassVar[int] = 1  # of a row, to another program
    states: ClassVar[Sequence[float]] = (NEAR, FAR)
    noise: ClassVar[float] = 0.02  # of a round
    name: ClassVar[str] = "2 made-up ranks"
    nccl: ClassVar[str] = ""  # its release
    device: ClassVar[str] = "cpu"  # beside whose rows no barrier is timed if it is a GPU, which the ranks share

    def __enter__(self) -> Self:
        Ranks.started += 1
        self.barrier = self.states[Ranks.started % len(self.states)]
        versions = {"nccl": self.nccl} if self.nccl else {}
        self.greeting = WorkerHello(TopologyPart(name=self.name, platform=self.device, ranks=2), versions=versions)
        return self

    def __exit__(self, *exception: object) -> None: ...

    def measure(
        self, case: Case, names: Sequence[str], sampling: Sampling, launches: Mapping[str, int] | None = None
    ) -> Iterator[Result]:
        share = max((times for size, times in self.slow.items() if case.nbytes >= size), default=1.0)
        for name in names:
            if case.nbytes == self.hung:
                yield Failed(case, name, self.platform, "timed out")
                continue
            seconds = float((self.barrier + case.nbytes / 2e10) * share * np.exp(self.noise * self.draw.normal()))
            row = Measurement(case, name, self.platform, 1, (seconds,) * 8, barrier=self.barrier)
            row = replace(row, note=Note(picked="two-shot"))
            if self.device == "gpu":
                row = replace(row, platform="gpu", barrier=None, note=Note(shared=Sharing(2, 1)))
            if case.nbytes == self.wrong:
                row = replace(row, mismatch=Mismatch(1, 7, 0, "1.0", "2.0", 1))
            off_core = 0.9 if self.disturbed else 0.0
            yield replace(row, scheduling=Scheduling(off_core=off_core, switches=self.switches))


@pytest.fixture(autouse=True)
def ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Ranks]:
    """Made-up ranks for every check of this process, and a folder of its own for what is kept."""
    Ranks.draw = np.random.default_rng(1)
    for name, value in {"started": 0, "slow": {}, "wrong": None, "hung": None, "disturbed": False}.items():
        monkeypatch.setattr(Ranks, name, value)
    monkeypatch.setattr(interleave, "Supervisor", Ranks)
    monkeypatch.setenv("COLLBENCH_STATE", str(tmp_path / "state"))
    return Ranks


def check(**changes: Any) -> CheckResult:
    result = collbench.check(**changes)
    assert result is not None
    return result


def test_a_machine_is_held_against_its_latency_at_first_and_against_its_good_runs_afterwards(tmp_path: Path) -> None:
    first, second = check(), check()
    assert first.word is second.word is Word.OK
    assert "latency" in first.compared
    assert "first check: would notice only" in first.line
    assert first.sight.single > MOST_SIGHT > second.sight.single
    assert "1 earlier good run" in second.compared
    assert second.line.startswith("collbench: OK allreduce 2 made-up ranks: ")
    assert "7 of 7 results correct and as expected" in second.line
    assert len(list((tmp_path / "state").rglob("run.jsonl"))) == 2


def test_a_baseline_that_others_may_have_written_is_refused_and_ours_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    state.write_text("")
    fix = "set COLLBENCH_STATE to a folder of your own"
    why = f"cannot keep good runs in {state}/checks: Not a directory; {fix}"
    assert check().hint == f"not stored for the next check: {why}"
    state.unlink()
    check()
    assert (state / "checks").stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(UsageError, match=f"checks: it belongs to user [0-9]+; {fix}"):
        check()


def test_ranks_that_share_a_gpu_are_held_against_their_good_runs(monkeypatch: Any) -> None:
    monkeypatch.setattr(Ranks, "device", "gpu")
    monkeypatch.setattr(Ranks, "states", (NEAR,))
    first, second = check(), check()
    assert (first.word, first.compared) == (Word.UNKNOWN, "")
    assert first.hint.startswith("stored for the next check")
    assert all("CPU" not in curve.remark for curve in first.curves)
    assert second.word is Word.OK, second.line
    assert "1 earlier good run" in second.compared


def test_what_was_measured_with_another_release_of_nccl_says_so_beside_the_verdict(
    monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(Ranks, "device", "gpu")
    monkeypatch.setattr(Ranks, "states", (NEAR,))
    monkeypatch.setattr(Ranks, "nccl", "2.30.7")
    check(out=tmp_path / "good")
    assert "2.30.7" not in check().line
    monkeypatch.setattr(Ranks, "nccl", "2.32.3")
    for words in ({}, {"reference": tmp_path / "good"}):
        result = check(**words)
        assert result.word is Word.OK
        assert "the baseline was measured with NCCL 2.30.7, this with 2.32.3" in result.remarks
        assert "NCCL 2.30.7" in result.line


def test_three_good_runs_are_kept_and_no_more(tmp_path: Path) -> None:
    for _ in range(5):
        last = check()
        assert last.word is Word.OK
    assert len(list((tmp_path / "state").rglob("run.jsonl"))) == GOOD_RUNS
    assert last.rounds < OF_A_BASELINE
    shutil.rmtree(Path(last.compared.partition("(")[2].rstrip(")")))  # as docs/checking.md has it, to begin anew
    assert "latency" in check().compared
    assert len(list((tmp_path / "state").rglob("run.jsonl"))) == 1


def test_what_became_slower_fails_and_is_not_kept(ranks: type[Ranks], tmp_path: Path) -> None:
    check()
    for slow in ({0: 1.3}, {65536: 1.3}):
        ranks.slow = slow
        result = check()
        assert result.word is Word.SLOW, result.line
        assert result.rounds >= SURE
    assert len(list((tmp_path / "state").rglob("run.jsonl"))) == 1


def test_each_state_of_the_machine_is_held_against_the_same_state(ranks: type[Ranks], monkeypatch: Any) -> None:
    check()
    for state in (NEAR, FAR):
        monkeypatch.setattr(Ranks, "states", (state,))
        assert check().word is Word.OK
        ranks.slow = {0: 1.3}
        assert check().word is Word.SLOW
        ranks.slow = {}


def test_a_wrong_or_missing_result_fails_at_once_and_is_said_first(ranks: type[Ranks], tmp_path: Path) -> None:
    for name in ("wrong", "hung"):
        setattr(ranks, name, 512)
        result = check()
        assert result.word is Word.WRONG
        assert result.rounds == 1
        assert "512 B" in result.line
        assert "6 of 7" in result.correctness.in_words()
        setattr(ranks, name, None)
    assert not list(tmp_path.rglob("run.jsonl"))


def test_beside_another_program_nothing_is_known(ranks: type[Ranks], tmp_path: Path) -> None:
    check()
    ranks.disturbed, ranks.slow = True, {0: 5.0}
    result = check(budget=0.1)
    assert result.word is Word.UNKNOWN
    assert result.disturbed == result.rows
    assert len(list((tmp_path / "state").rglob("run.jsonl"))) == 1


def test_a_good_run_beside_another_program_is_not_stored_and_says_why(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(Ranks, "switches", 11)
    result = check()
    assert result.word is Word.OK
    assert result.hint.startswith("not stored for the next check: other programs")
    assert not list((tmp_path / "state").rglob("run.jsonl"))


def test_what_is_slow_beside_another_program_is_no_failure(ranks: type[Ranks], monkeypatch: Any) -> None:
    check()
    ranks.slow = {0: 1.5}
    monkeypatch.setattr(Ranks, "switches", 11)
    result = check(budget=0.1)
    assert result.word is Word.UNKNOWN
    assert "another program" in result.curves[0].remark
    monkeypatch.setattr(Ranks, "switches", 1)
    assert check().word is Word.SLOW


def test_what_a_model_hardly_judges_is_unknown_and_kept_for_the_next_check(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(Ranks, "device", "gpu")
    monkeypatch.setattr(Ranks, "states", (NEAR,))
    place = Candidate(load("dgx-h100").part(2), 1)
    monkeypatch.setattr(library, "candidates", lambda *_: ([place], ""))

    for word, limit, kept in ((Word.SLOW, 3.0, 0), (Word.OK, 1.5, 0), (Word.UNKNOWN, 3.0, 1)):
        changed = {"word": word, "limit": limit, "sight": Sight(limit, (limit,) * 3)}
        found = lambda curves, *_, by=changed: (  # noqa: E731
            [replace(diagnose(rows, None, RunFacts({})), **by) for rows in curves],
            [place],
        )
        monkeypatch.setattr(library, "judge_by_candidates", found)
        first = check()
        assert (first.word, len(list(tmp_path.rglob("run.jsonl")))) == (word, kept)
    second = check()
    assert second.word is Word.OK
    assert "1 earlier good run" in second.compared


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_a_stored_run_is_judged_by_its_machines_baseline_as_its_measurement_was(
    device: str, ranks: type[Ranks], monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(Ranks, "device", device)
    monkeypatch.setattr(Ranks, "states", (NEAR,))
    check()
    for times, word in ((1.0, Word.OK), (1.3, Word.SLOW)):
        ranks.slow = {0: times}
        measured, stored = check(out=tmp_path / str(times)), check(run=tmp_path / str(times))
        assert measured.word is stored.word is word, stored.line
        assert "earlier good run" in stored.compared


def test_a_reference_is_a_run_or_a_folder_of_runs_or_floors(tmp_path: Path, ranks: type[Ranks]) -> None:
    for name in ("good", "better"):
        assert check(out=tmp_path / "runs" / name).word is Word.OK
        assert read(tmp_path / "runs" / name).whole
    for place, runs in (("runs/good", "the run "), ("runs", "2 runs in ")):
        for times, word in ((1.0, Word.OK), (1.4, Word.SLOW), (0.6, Word.FAST)):
            ranks.slow = {0: times}
            result = check(reference=tmp_path / place)
            assert (result.word, result.compared.partition(str(tmp_path))[0]) == (word, runs), (place, result.line)
    ranks.slow = {}
    floors = tmp_path / "floors.toml"
    for least, word in ((5, Word.OK), (500, Word.SLOW)):
        floors.write_text(f'[[floor]]\ncollective="allreduce"\nsize="2M"\nvalue={least}\nunit="GB/s"\n')
        result = check(reference=floors, minbytes="2M")
        assert result.word is word, result.line
        assert "floors.toml" in result.compared
        whole = check(reference=floors)  # of the other sizes nothing is expected, and no round is spent on them
        assert whole.word is word, whole.line
        assert whole.rounds < OF_A_BASELINE
        assert "6 not compared" in whole.line
    assert check(reference=floors, maxbytes="64K").word is Word.UNKNOWN
    (tmp_path / "empty").mkdir()
    for missing in ("nothing", "empty"):
        with pytest.raises(CollbenchError, match=missing):
            check(reference=tmp_path / missing)


def test_large_messages_are_measured_besides_on_gpus_unless_sizes_were_named_or_it_takes_too_long(
    ranks: type[Ranks], monkeypatch: Any
) -> None:
    monkeypatch.setattr(Ranks, "states", (NEAR,))
    for device, largest, slow, words, more in (
        ("gpu", 128 << 20, 1, {}, LARGER[1:]),
        ("gpu", 128 << 20, 4, {}, LARGER[1:2]),
        ("gpu", 16 << 20, 1, {}, LARGER[:1]),
        *(("gpu", 128 << 20, 1, words, ()) for words in ({"minbytes": 64}, {"maxbytes": "128M"}, {"stepfactor": 4})),
        ("cpu", 128 << 20, 1, {}, ()),
    ):
        monkeypatch.setattr(Ranks, "device", device)
        monkeypatch.setattr(library, "ON_CACHES", largest)
        ranks.slow = {0: slow}
        rows = check(**words).sizes
        found = tuple(size.row.case.nbytes for size in rows if size.row.case.nbytes > largest)
        assert found == more, (device, largest, slow, words)


def test_a_budget_may_end_a_check_after_one_round_which_decides_nothing_and_is_not_kept(
    ranks: type[Ranks], tmp_path: Path
) -> None:
    check()
    for times in (1.0, 3.0):
        ranks.slow = {0: times}
        result = check(budget=1e-6, out=tmp_path / str(times))
        assert (result.rounds, result.word) == (1, Word.UNKNOWN)
        assert "--budget ended after 1 round; 3 need --budget 1s" in result.line
        assert result.hint == f"run file: {tmp_path / str(times) / NAME}"
    assert len(list((tmp_path / "state").rglob(NAME))) == 1


def test_good_runs_of_another_machine_or_operation_are_no_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    check()
    assert "latency" in check(op="broadcast").compared
    monkeypatch.setattr(Ranks, "name", "4 made-up ranks")
    assert "latency" in check().compared
