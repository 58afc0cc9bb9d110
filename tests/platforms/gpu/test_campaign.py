"""The whole GPU campaign on a made-up machine: every stage, one that hangs, one that fails, one that is killed."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.gpu.made_up import CLEAN, HANGING, UNCLEAN, MadeUp
from tools.gpu.stages import STAGES, Stage

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
SEVERAL_GPUS = {stage.name for stage in STAGES if stage.gpus > 1}
PARTS = 6  # of the stages, for each of which there is a limit of time


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[MadeUp]:
    made = MadeUp(tmp_path)
    yield made
    assert made.left() == [], "processes were left behind"


def distinct() -> list[Stage]:
    """A stage of each kind: those that differ in their number of ranks are one program with another number."""
    kinds: dict[tuple[str, ...], Stage] = {}
    for stage in STAGES:
        if stage.command[0] != "sanitize":  # which the next test runs, with each of its outcomes
            number = stage.command[-1] if stage.name in SEVERAL_GPUS else ""
            kinds.setdefault((number, *(word for word in stage.command if not word.isdigit())), stage)
    return list(kinds.values())


def test_every_stage_passes_on_one_gpu_but_for_those_that_need_several(machine: MadeUp) -> None:
    for part in range(PARTS):
        stages = distinct()[part::PARTS]
        status, output = machine.run("campaign", STAGE=",".join(stage.name for stage in stages))
        assert status == 0, output
        for stage in stages:
            outcome, several = machine.record(stage.name)["outcome"], stage.name in SEVERAL_GPUS
            assert outcome == ("not possible here" if several else "passed"), output
            assert f"- **{stage.name}** (" in machine.page()
            assert several or machine.record(stage.name)["numbers"], f"{stage.name} passed without a number to show"


def test_what_hangs_fails_or_is_killed_stands_on_the_page_and_can_be_done_again(machine: MadeUp) -> None:
    machine.provide("compute-sanitizer", HANGING)
    status, output = machine.run("campaign", STAGE="memcheck", LIMIT="2")
    assert (status, machine.record("memcheck")["outcome"]) == (1, "timed out"), output
    assert machine.left() == []
    machine.provide("compute-sanitizer", UNCLEAN)
    status, output = machine.run("campaign", STAGE="facts,racecheck")
    assert status == 1, output
    failed = machine.page().partition("## Failed")[2].partition("##")[0]
    assert "FAILED: racecheck is NOT clean with 2 ranks: exit status 9" in failed
    assert "- **memcheck** (" in machine.page().partition("## Timed out")[2], "what was found before"
    (machine.folder / "hangs").unlink()
    machine.provide("compute-sanitizer", HANGING)
    campaign = machine.start("campaign", STAGE="memcheck")
    while not (machine.folder / "hangs").exists():
        assert campaign.poll() is None, campaign.communicate()[0]
        time.sleep(0.02)
    campaign.send_signal(signal.SIGTERM)
    output, _ = campaign.communicate(timeout=60)
    assert (campaign.returncode, machine.record("memcheck")["outcome"]) == (128 + signal.SIGTERM, "cut off"), output
    assert "## Cut off" in machine.page()
    machine.provide("compute-sanitizer", CLEAN)
    status, output = machine.run("campaign", STAGE="memcheck,racecheck")
    assert status == 0, output
    assert "3 passed, 0 left" in machine.page()
    record = machine.folder / "out" / "racecheck" / "result.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"sources": "others"}))
    status, output = machine.run("campaign", STAGE="memcheck,racecheck")
    assert status == 0, output
    begun = [output.index(f"{name}: every rung under") for name in ("racecheck", "memcheck")]
    assert begun == sorted(begun), "what passed with these sources comes last"
