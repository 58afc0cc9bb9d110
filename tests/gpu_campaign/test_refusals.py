"""What may be refused on a GPU: every record of the table, and what a machine that refuses more comes to."""

from pathlib import Path

import pytest

from collbench.errors import PlatformError
from collbench.measurement import Skipped
from collbench.platforms.gpu import cuda as gpu_cuda
from collbench.platforms.gpu import nccl
from tests.conftest import case, measurement
from tests.gpu import places, refusals
from tests.gpu.refusals import ALLOWED, Here, unjust, unjust_of
from tests.gpu.sweeps import disagreements
from tests.gpu_campaign.made_up import MadeUp
from tests.platforms.gpu.fake_cuda import Machine

ONE_GPU, OLD, NONE = Here(4, 1, nccl=23007), Here(4, 1, nccl=22809), Here(4, 1)
FOUR_GPUS, FOUR_PROCESSES = Here(4, 4, nccl=23007), Here(4, 4, processes=4, nccl=23007)
ANCIENT, WITHOUT_PEERS = Here(4, 4, nccl=22100), Here(4, 4, nccl=23007, peers=False)
ALWAYS = None  # a case that no hardware carries out

REASONS = [  # who says what, where that is just, and where it is not
    ("ring-host", "ring-host carries out nothing of the kind", ONE_GPU, ALWAYS),
    ("ring-host", "the host drives it, and cannot enqueue what is to be computed meanwhile", ONE_GPU, ALWAYS),
    ("two-shot", "alltoall has no in-place form", ONE_GPU, ALWAYS),
    ("two-shot", "once is enough", ONE_GPU, ALWAYS),
    ("two-shot", "GPU 0 cannot use the memory of GPU 1: no peer access", WITHOUT_PEERS, FOUR_GPUS),
    ("ring-flags", "needs ranks that share a GPU", FOUR_GPUS, ONE_GPU),
    ("nccl", "NCCL's all-to-all is made of sends and receives, which cannot share a buffer", ONE_GPU, ALWAYS),
    ("nccl", "a library cannot be looked into", ONE_GPU, ALWAYS),
    ("nccl", "CuPy found no NCCL: pip install 'nvidia-nccl-cu12>=2.30' (or -cu13)", NONE, ONE_GPU),
    ("nccl", "NCCL 2.28.9 has no ranks that share a GPU, 2.30 has: upgrade", OLD, ONE_GPU),
    ("nccl", "NCCL 2.21.0 has no estimates, 2.22 has", ANCIENT, ONE_GPU),
    ("one-shot", "a rank's result would overwrite the input that others still read", ONE_GPU, ALWAYS),
    ("one-shot-ll", "inboxes hold messages up to 256 KiB", ONE_GPU, ALWAYS),
    ("ring-events", "events order streams of one process only", FOUR_PROCESSES, FOUR_GPUS),
    ("narrow-half", "wires are narrower than float, and carry nothing else: not double", ONE_GPU, ALWAYS),
    ("narrow-half", "the bound on what wires lose is proved for sum only, not for max", ONE_GPU, ALWAYS),
    ("nvls", "the switch has no instruction for int8; it has for: float", ONE_GPU, ALWAYS),
    ("nvls", "a switch adds what is on two GPUs or more, and the ranks are on one", ONE_GPU, FOUR_GPUS),
    ("nvls", "ranks share a GPU, and a switch adds one input of each: use --ranks 1", ONE_GPU, FOUR_GPUS),
    ("nvls", "memory for the switch is made by one process that holds all ranks", FOUR_PROCESSES, FOUR_GPUS),
    ("nvls", "GPU 0 has no multicast, which needs an NVSwitch and its fabric manager running", FOUR_GPUS, ALWAYS),
]


@pytest.mark.parametrize(("who", "reason", "just", "not_just"), REASONS, ids=lambda value: str(value)[:40])
def test_a_refusal_is_just_where_its_record_says(who: str, reason: str, just: Here, not_just: Here | None) -> None:
    assert unjust(who, reason, just) == ""
    if not_just:
        assert unjust(who, reason, not_just) == f"{who} must work here and refuses: {reason}"


@pytest.mark.parametrize("record", ALLOWED, ids=lambda refusal: refusal.reason[:40])
def test_every_record_allows_a_reason_that_no_other_does(
    record: refusals.Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that nothing needs would hide a defect."""
    monkeypatch.setattr(refusals, "ALLOWED", [refusal for refusal in ALLOWED if refusal is not record])
    assert any(unjust(who, reason, just) for who, reason, just, _ in REASONS)


def test_a_rung_may_not_borrow_another_ones_reason() -> None:
    assert unjust("ring-flags", "a rank's result would overwrite the input that others still read", ONE_GPU)
    assert unjust("two-shot", "the bound on what wires lose is proved for sum only, not for max", ONE_GPU)
    assert unjust("two-shot", "a switch adds what is on two GPUs or more, and the ranks are on one", ONE_GPU)


def test_rows_of_a_run_are_judged_each_reason_once() -> None:
    rows = [Skipped(case(), "two-shot", "gpu", "a bad day"), Skipped(case(nbytes=4), "two-shot", "gpu", "a bad day")]
    assert unjust_of([*rows, measurement()], ONE_GPU) == ["two-shot must work here and refuses: a bad day"]


def test_a_grid_that_does_not_fit_fails_the_checks_of_a_gpu(tmp_path: Path) -> None:
    """A machine whose multiprocessors hold no block refuses what every real one carries out."""
    status, output = MadeUp(tmp_path, blocks_each=0).run(
        "run", "--ranks", "2", "--impl", "ring-flags", "--how", "graphs"
    )
    assert status == 1, output
    assert "FAILED: allreduce 4 B: ring-flags must work here and refuses: 2 ranks x 1 blocks" in output


def test_the_same_fails_a_sweep(tmp_path: Path) -> None:
    status, output = MadeUp(tmp_path, blocks_each=0).run("measure", "--ranks", "2", "--out", str(tmp_path / "run"))
    assert status == 1, output
    assert "FAILED: ring-flags must work here and refuses: 2 ranks x 1 blocks" in output


def test_an_old_nccl_is_skipped_with_the_reason(tmp_path: Path) -> None:
    status, output = MadeUp(tmp_path, nccl_version=22809).run("run", "--ranks", "2", "--impl", "nccl")
    assert status == 77, output
    assert "skipped: NCCL 2.28.9 has no ranks that share a GPU, 2.30 has" in output


def test_an_old_nccl_is_no_defect_of_a_sweep(tmp_path: Path) -> None:
    machine = MadeUp(tmp_path, nccl_version=22809)
    status, output = machine.run("measure", "--ranks", "2", "--out", str(tmp_path / "run"))
    assert status == 0, output
    assert output.count("skipped: NCCL 2.28.9 has no ranks that share a GPU") == 1


def test_nccl_is_told_of_the_multiprocessors_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the ranks of the place, not of the most crowded one; and only once, as NCCL listens."""
    for name in nccl.sharing(1, 1):
        monkeypatch.setenv(name, "")  # so that it is put back to what it was
        monkeypatch.delenv(name)
    monkeypatch.setattr(places, "_shared", [])
    cuda = gpu_cuda.Cuda(Machine(1, multiprocessors=132).cupy())
    places.share_nccl(cuda, 4)
    assert places.os.environ["NCCL_MAX_CTAS"] == "32"
    places.share_nccl(cuda, 4)
    with pytest.raises(PlatformError, match="NCCL reads its environment once"):
        places.share_nccl(cuda, 8)
    with pytest.raises(PlatformError, match="NCCL reads its environment once"):
        places.share_nccl(cuda, 1)


def test_two_runs_agree_within_a_share_and_in_what_they_have() -> None:
    one, other = {("allreduce", 8): 1.019}, {("allreduce", 8): 1.0}
    assert disagreements(one, other, 0.02) == []
    assert disagreements({("allreduce", 8): 1.021}, other, 0.02) == [
        "allreduce of 8 B: 1.021 of the other's time, more than 2% apart"
    ]
    assert disagreements(one, {**other, ("allreduce", 16): 1.0}, 0.02) == ["allreduce of 16 B is in one run only"]
    assert disagreements({}, {}, 0.02) == ["neither run has a time"]
