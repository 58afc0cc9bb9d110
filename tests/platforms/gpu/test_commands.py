"""Whole commands on made-up GPUs, in processes of their own: what they say, and what their run files hold."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from collbench.algorithms import implementations
from collbench.analysis.machine import discovered
from collbench.analysis.overlap import overlaps
from collbench.cases import Step
from collbench.cli._step_sessions import parse_ctas
from collbench.errors import UsageError
from collbench.measure.step_runs import overlap_steps
from collbench.platforms.cost import gpus
from collbench.platforms.gpu.nccl import MOST_CTAS
from collbench.results import Explanation, Failed, Measurement, StepTimes
from collbench.runfile.schema import case_fields, to_case
from collbench.runfile.store import read
from collbench.topology.discovered import Kind, Topology
from tests.conftest import case
from tools.stand_in.whole_commands import on_gpus

SWEEP = ("sweep", "--impl", "nccl", "-b", "64", "-e", "64", "-n", "2", "--no-plot", "--out", "out")
OPERATION, FILE = "operation", "NCCL_DEBUG_FILE"  # in which NCCL hangs; the variable that says where it prints
SLICES: dict[str, Any] = {"devices": 2, "buses": {"1": 0}}
STEP = ("--compute", "50KFLOP", "--gradients", "8K", "--matrix", "16", "--buckets", "8K", "--budget", "0.02")


def joined(folder: Path) -> Topology:
    """What the header of the run there says of the GPUs."""
    topology = discovered(read(folder))
    assert topology
    return topology


def test_the_header_of_a_sweep_says_what_joins_the_gpus(tmp_path: Path) -> None:
    done = on_gpus(tmp_path, *SWEEP, devices=2)
    assert done.returncode == 0, done.stderr
    topology = joined(tmp_path / "out")
    assert [(link.kind, link.p2p) for link in topology.links] == [(Kind.PCIE, "yes")]
    assert [(gpu.bus_id, gpu.capability) for gpu in topology.gpus] == [("0000:00:00.0", "9.0"), ("0000:01:00.0", "9.0")]


def test_a_switch_adds_in_a_whole_command(tmp_path: Path) -> None:
    words = [word.replace("nccl", "nvls") for word in SWEEP]
    done = on_gpus(tmp_path, *words, devices=2, switch=True)
    assert done.returncode == 0, done.stderr
    assert [isinstance(row, Measurement) and row.right for row in read(tmp_path / "out").results] == [True]
    assert [link.kind for link in joined(tmp_path / "out").links] == [Kind.NVSWITCH]


def test_explain_says_the_share_of_each_kernels_own_bound(tmp_path: Path) -> None:
    """Of what counts its bytes, on the GPU that is there; of a library nothing is known."""
    words = ("--impl", "nccl,ring-flags,two-shot", "--ranks", "2", "-b", "64K", "--out", "out")
    done = on_gpus(tmp_path, "explain", "--on", "gpu", *words, devices=1)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("of these times"))
    rows = {row.implementation: row for row in read(tmp_path / "out").results if isinstance(row, Explanation)}
    assert set(rows) == {"nccl", "ring-flags", "two-shot"}
    for name, share in re.findall(r"([\w-]+) (\d+)% at 64 KiB", line):
        cost, row = implementations()[name].cost, rows.pop(name)
        assert cost
        assert int(share) == round(100 * gpus(2, 1).floor(cost(row.case), row.case.nbytes) / row.seconds), name
    assert set(rows) == {"nccl"}


def test_slices_of_a_gpu_are_no_gpus_on_a_bus(tmp_path: Path) -> None:
    """`diagnose` expects nothing of them, and says why; of no line rate it knows either."""
    assert on_gpus(tmp_path, *SWEEP, **SLICES).returncode == 0
    done = on_gpus(tmp_path, "diagnose", "out", **SLICES)
    assert "no system has MIG slices" in done.stdout
    assert "expected" not in done.stdout
    assert "slot," not in done.stdout


def test_without_nvml_the_header_has_what_cuda_knows_and_the_reason(tmp_path: Path) -> None:
    """The sweep says it, too, and `diagnose` takes nothing for granted."""
    done = on_gpus(tmp_path, *SWEEP, devices=2, nvml="missing")
    assert done.returncode == 0, done.stderr
    topology = joined(tmp_path / "out")
    assert not topology.links
    assert [gpu.uuid for gpu in topology.gpus] == ["01" * 16, "02" * 16]
    assert topology.unseen.startswith("links and slots of the GPUs are not known: NVML cannot be used (")
    assert "pip install nvidia-ml-py" in topology.unseen
    assert f"note: {topology.unseen}" in done.stderr.splitlines()


def test_what_nccl_prints_is_kept_and_named_where_it_hangs(tmp_path: Path) -> None:
    """In the run's folder, a file for each set of ranks; or where the user has sent it.  Of the library's rows only."""
    theirs = tmp_path / "theirs"
    ours = [tmp_path / "out" / name for name in ("nccl-debug.log", "nccl-debug-2.log")]
    for variables, kept in (({}, ours), ({FILE: str(theirs)}, [theirs, theirs])):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        words = [*SWEEP, "-e", "128", "-f", "2", "--timeout", "1"]  # two sizes, so that ranks start twice
        done = on_gpus(tmp_path, *words, variables={"NCCL_DEBUG": "INFO"} | variables, devices=2, nccl_hangs=OPERATION)
        assert done.returncode == 1, done.stderr
        failed = [row.reason for row in read(tmp_path / "out").results if isinstance(row, Failed)]
        for reason, file in zip(failed, kept, strict=True):
            assert reason.endswith(file.name)
            assert file.read_text().count("made-up NCCL INFO") == 1, file
    words[words.index("nccl")] = "ring-flags"
    shutil.rmtree(tmp_path / "out")
    done = on_gpus(tmp_path, *words, variables={"NCCL_DEBUG": "INFO"}, devices=2, dead=[1])
    assert "nccl-debug" not in done.stdout


@pytest.mark.full
def test_every_number_of_ctas_has_rows_by_ranks_that_were_told_it(tmp_path: Path) -> None:
    """Of the library only: rungs do not read its environment.  All are held against the same steps without overlap."""
    words = ("step", "overlap", "--on", "gpu", "--impl", "nccl,two-shot", "--ctas", "4,1", *STEP, "--out", "out")
    done = on_gpus(tmp_path, *words, devices=2)
    assert done.returncode == 0, done.stdout + done.stderr
    results = list(read(tmp_path / "out").results)
    rows = [row for row in results if isinstance(row, StepTimes) and row.case.step]
    notes = {(row.implementation, row.case.step.way): str(row.note) for row in rows if row.case.step}
    wanted = {("nccl", "stream, 1 CTA"): "NCCL_MAX_CTAS=1", ("nccl", "stream, 4 CTAs"): "NCCL_MAX_CTAS=4"}
    assert {way: note.split(";")[0] for way, note in notes.items() if "CTA" in way[1]} == wanted
    assert not any("NCCL_MAX_CTAS" in note for way, note in notes.items() if "CTA" not in way[1])
    assert {("two-shot", "stream"), ("nccl", "stream"), ("nccl", "sequential")} <= set(notes)
    found = [one for one in overlaps(results) if one.row.implementation == "nccl"]
    assert [one.step.ctas for one in found] == [0, 1, 4]
    assert len({id(one.sequential) for one in found}) == 1
    assert "stream, 4 CTAs" in done.stdout


def test_ways_without_overlap_are_not_repeated_for_every_number_of_ctas() -> None:
    """They are what overlap is held against, and NCCL does there as it likes."""
    every = overlap_steps(Step(8, 64), "gpu", (1024, 4096), (2, 8))
    plain = ["compute", "communicate", "sequential", "stream", "stream"]
    assert [step.way for step in every if step.ctas == 0] == plain
    assert [(step.way, step.bucket) for step in every if step.ctas] == [
        (f"stream, {most} CTAs", bucket) for most in (2, 8) for bucket in (1024, 4096)
    ]


def test_a_number_of_ctas_is_parsed_and_kept_in_a_run_file_and_others_are_refused() -> None:
    assert parse_ctas("16, 4,16", ["nccl"]) == (4, 16)
    assert parse_ctas(None, []) == ()
    for text in ("", "0", "4,", "-1", "2.5", "many", str(MOST_CTAS + 1), "\u0664"):
        with pytest.raises(UsageError, match=r"is no number of CTAs; give some from 1 to 64, such as 4,16"):
            parse_ctas(text, ["nccl"])
    for step in (Step(8, 64, "stream", 1024, ctas=4), Step(8, 64)):
        fields = case_fields(case(step=step))
        assert to_case(json.loads(json.dumps(fields))).step == step
        assert ("ctas" in fields["step"]) == bool(step.ctas)
    for number in (-1, 1.5, "4", True, None):
        fields["step"]["ctas"] = number
        with pytest.raises(ValueError, match=r"step\.ctas"):
            to_case(fields)
