"""The whole GPU campaign on a made-up machine: every stage, one that hangs, one that fails, one that is killed."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collbench.runs.file import read
from tests.conftest import ROOT
from tools.gpu.made_up import CLEAN, HANGING, NVCC, UNCLEAN, MadeUp
from tools.gpu.stages import STAGES, Stage

SEVERAL_GPUS = {stage.name for stage in STAGES if stage.gpus > 1}
ELSEWHERE = ("sanitize",)  # programs that the next test runs, with each of their outcomes
PARTS = 6  # of the stages, so that the tests of several cores share them


def _distinct() -> list[Stage]:
    """A stage of each kind: those that differ in their number of ranks are one program with another number.

    Ranks by the dozen are for a real GPU; that numbers of them differ, tests/platforms shows.
    """
    kinds: dict[tuple[str, ...], Stage] = {}
    for stage in STAGES:
        if stage.command[0] not in ELSEWHERE:
            number = stage.command[-1] if stage.name in SEVERAL_GPUS else ""
            kinds.setdefault((number, *(word for word in stage.command if not word.isdigit())), stage)
    return list(kinds.values())


def test_every_program_of_the_campaign_is_carried_out_here() -> None:
    """By a stage that is not left out for having the same command but for a number."""
    assert {stage.command[0] for stage in STAGES} == {stage.command[0] for stage in _distinct()} | {*ELSEWHERE}
    assert {*SEVERAL_GPUS} <= {stage.name for stage in _distinct()}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[MadeUp]:
    made = MadeUp(tmp_path)
    yield made
    assert made.left() == [], "processes were left behind"


@pytest.mark.parametrize("part", range(PARTS))
def test_every_stage_passes_on_one_gpu_but_for_those_that_need_several(part: int, machine: MadeUp) -> None:
    stages = _distinct()[part::PARTS]
    status, output = machine.run("campaign", STAGE=",".join(stage.name for stage in stages))
    assert status == 0, output
    outcomes = {stage.name: machine.record(stage.name)["outcome"] for stage in stages}
    assert outcomes == {
        stage.name: "not possible here" if stage.name in SEVERAL_GPUS else "passed" for stage in stages
    }, output
    for stage in stages:
        assert f"- **{stage.name}** (" in machine.page()
        if stage.name not in SEVERAL_GPUS:
            assert machine.record(stage.name)["numbers"], f"{stage.name} passed without a number to show for it"
    assert output.count(machine.page()) == 1


def test_what_hangs_and_what_fails_stands_on_the_page_and_can_be_done_again(machine: MadeUp) -> None:
    machine.provide("compute-sanitizer", HANGING)
    status, output = machine.run("campaign", STAGE="memcheck", LIMIT="2")
    assert status == 1, output
    assert machine.record("memcheck")["outcome"] == "timed out"
    assert "- **memcheck** (" in machine.page().partition("## Timed out")[2]
    assert machine.left() == []
    machine.provide("compute-sanitizer", UNCLEAN)
    status, output = machine.run("campaign", STAGE="facts,racecheck")
    assert status == 1, output
    failed = machine.page().partition("## Failed")[2].partition("##")[0]
    assert "FAILED: racecheck is NOT clean with 2 ranks: exit status 9" in failed
    assert "## Timed out" in machine.page(), "what was found before is still on the page"
    machine.provide("compute-sanitizer", CLEAN)
    status, output = machine.run("campaign", STAGE="memcheck,racecheck")
    assert status == 0, output
    assert "3 passed, 0 left" in machine.page()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda record: record.name)
def test_a_campaign_that_is_killed_leaves_a_whole_folder_and_no_process(
    number: signal.Signals, machine: MadeUp
) -> None:
    machine.provide("compute-sanitizer", HANGING)
    campaign = machine.start("campaign", STAGE="memcheck")
    while not (machine.folder / "hangs").exists():
        assert campaign.poll() is None, campaign.communicate()[0]
        time.sleep(0.02)
    campaign.send_signal(number)
    output, _ = campaign.communicate(timeout=20)
    assert machine.record("memcheck")["outcome"] == "cut off"
    deadline = time.monotonic() + 10
    while machine.left() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert machine.left() == []
    if number != signal.SIGKILL:
        assert campaign.returncode == 128 + number
        assert "## Cut off" in machine.page()
        assert machine.page() in output


def test_without_a_gpu_nothing_runs(tmp_path: Path) -> None:
    machine = MadeUp(tmp_path, devices=0)
    status, output = machine.run("campaign")
    assert (status, "no GPU here, so nothing was run" in output) == (2, True), output
    assert not (tmp_path / "out").exists()


def test_a_stage_that_does_not_exist_is_named_with_those_that_do(machine: MadeUp) -> None:
    status, output = machine.run("campaign", STAGE="facts,fancy")
    assert status == 2
    assert "collbench: error: unknown stage 'fancy'; choose from: tests, sweeps, bench, facts, " in output


def test_make_gpu_campaign_takes_its_stage_and_folder(machine: MadeUp) -> None:
    command = [
        "make",
        "gpu-campaign",
        f"GPU_PYTHON={sys.executable}",
        "STAGE=facts",
        f"CAMPAIGN={machine.folder / 'own'}",
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=machine.environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 0 left." in (machine.folder / "own" / "summary.md").read_text()


def test_an_nccl_that_cannot_be_loaded_is_told_before_the_first_stage(machine: MadeUp) -> None:
    status, output = machine.run("campaign", COLLBENCH_NCCL=str(machine.folder / "gone.so"))
    assert status == 2, output
    assert output.startswith(f"collbench: error: COLLBENCH_NCCL={machine.folder / 'gone.so'} cannot be loaded")
    assert not (machine.folder / "out").exists()


def test_no_kernel_is_compiled_of_what_a_wire_refuses(machine: MadeUp) -> None:
    """A wire carries sums; a compiler would refuse the rest, and fail the stage."""
    words = "from tools.gpu.compile_all import Work, carry_out as done; print([done(Work('narrow-half', redop='max'))])"
    done = subprocess.run(
        [sys.executable, "-c", words], cwd=ROOT, env=machine.environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "['']\n", done.stdout + done.stderr


def test_a_kernel_that_does_not_compile_fails_its_stage(machine: MadeUp) -> None:
    compiler = machine.folder / "compiler"
    compiler.write_text("#!/bin/sh\n[ $1 = --version ] && echo 1 || { echo 'error: a typo' >&2; exit 1; }\n")
    compiler.chmod(0o755)
    status, output = machine.run("campaign", STAGE="kernels", CXX=str(compiler))
    assert status == 1, output
    assert "a typo" in machine.page().partition("## Failed")[2]


def test_a_clock_that_differs_from_that_of_nccl_tests_is_found(machine: MadeUp) -> None:
    """By more than even a made-up machine is allowed; both launch without graphs."""
    machine.provide("nvcc", NVCC.replace(" 50.00 ", "  0.01 "))
    status, output = machine.run("nccl_tests", "--out", str(machine.folder / "apart"))
    assert status == 1, output
    assert "FAILED: nccl and nccl-tests: allreduce of 64 B: " in output
    assert read(machine.folder / "apart" / "run-0").header.sweep.sampling["graph"] is False


@pytest.mark.parametrize(
    ("missing", "reason"),
    [("", "NCCL_TESTS names no folder"), ("/nowhere", "NCCL_TESTS=/nowhere is not the source of nccl-tests")],
)
def test_without_the_source_of_nccl_tests_they_are_skipped(missing: str, reason: str, machine: MadeUp) -> None:
    status, output = machine.run("campaign", STAGE="nccl-tests", NCCL_TESTS=missing)
    assert status == 0, output
    assert "## Not possible here\n\n- **nccl-tests** (" in machine.page()
    assert reason in machine.page()


def test_two_gpus_are_compared_in_one_process_and_in_two(tmp_path: Path) -> None:
    status, output = MadeUp(tmp_path, devices=2).run("nccl_arrangements")
    assert status == 0, output
    (line,) = (line for line in output.splitlines() if line.startswith("= "))
    assert line.startswith("= nccl, allreduce of 64 B, 2 GPUs: ")
    assert "us in one process, " in line
    assert "us in a process for every GPU, ratio " in line


def test_a_package_called_tests_that_is_installed_does_not_take_the_place_of_these(tmp_path: Path) -> None:
    """Some wheels bring one by mistake, and a package that is one by its file goes before a mere folder."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").write_text("")
    command = [sys.executable, "-m", "tools.gpu.run", "--help"]
    done = subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
