"""The order, the bounds and the record of a campaign's stages, on small programs (toys.py)."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.errors import UsageError
from tests.gpu import bounded, campaign, page, said, scale
from tests.gpu.campaign import Campaign
from tests.gpu.stages import MOST, STAGES, Stage, choose
from tests.gpu_campaign import toys

Ran = list[str]
IN_ORDER = (
    *("facts", "kernels", "rungs-4-launches", "rungs-4-graphs", "rungs-2-launches", "rungs-8-graphs", "processes-2"),
    *("processes-4", "nccl-2", "nccl-4", "nccl-8", "sweep-4", "targets", "host-alone", "explain", "memcheck"),
    *("synccheck", "nccl-tests", "rungs-narrow", "steps-overlap", "steps-jitter", "sweep-settings"),
)


def toy(name: str, folder: Path, limit: int = 60) -> Stage:
    return Stage(name, f"what {name} shows", ("toys", name, str(folder / "ran")), limit)


def a_campaign(folder: Path, *names: str, **fields: object) -> Campaign:
    stages = [toy(name, folder) for name in names]
    usual = {"named": False, "budget": 500.0, "limit": 1e9, "package": "tests.gpu_campaign"}
    return Campaign(folder / "out", stages, **{**usual, **fields})  # type: ignore[arg-type]


def ran(folder: Path) -> Ran:
    return (folder / "ran").read_text().split() if (folder / "ran").exists() else []


@pytest.fixture(autouse=True)
def _known_stages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The page shows what is in the table."""
    names = ("good", "bad", "crash", "skipping", "hang", "orphan")
    monkeypatch.setattr(campaign, "STAGES", tuple(toy(name, tmp_path) for name in names))


def test_every_outcome_stands_on_the_page_with_its_reason(tmp_path: Path) -> None:
    whole = a_campaign(tmp_path, "good", "bad", "crash", "skipping")
    whole.run()
    text = whole.page()
    assert "2 failed, 1 passed, 1 not possible here, 0 left." in text
    assert ": what bad shows. exit status 1: apples   FAILED: a worm, of all things (`bad/log.txt`)" in text
    assert ": what crash shows. exit status 1: ZeroDivisionError: nobody thought of it" in text
    assert ": what skipping shows. no apples here\n" in text
    assert "  - 41 apples\n" in text
    assert whole.status() == 1
    assert (tmp_path / "out" / "summary.md").read_text() == text


def test_what_passed_is_not_run_again_and_what_failed_comes_after_what_is_new(tmp_path: Path) -> None:
    a_campaign(tmp_path, "bad", "good").run()
    a_campaign(tmp_path, "bad", "good", "skipping").run()
    assert ran(tmp_path) == ["bad", "good", "skipping", "bad"]


def test_what_said_that_it_cannot_is_asked_again_last(tmp_path: Path) -> None:
    a_campaign(tmp_path, "skipping", "bad").run()
    a_campaign(tmp_path, "skipping", "bad", "good").run()
    assert ran(tmp_path) == ["skipping", "bad", "good", "bad", "skipping"]


def test_what_needs_more_gpus_than_there_are_is_never_started(tmp_path: Path) -> None:
    whole = a_campaign(tmp_path, gpus=2)
    whole.stages = [replace(toy("good", tmp_path), gpus=2), replace(toy("bad", tmp_path), gpus=3)]
    whole.run()
    assert ran(tmp_path) == ["good"]
    assert "- **bad** (0 s): what bad shows. there are 2 GPUs only\n" in whole.page()
    assert whole.status() == 0


def test_what_a_stage_left_before_is_put_aside_until_there_is_more_of_it(tmp_path: Path) -> None:
    a_campaign(tmp_path, "bad").run()
    (tmp_path / "out" / "bad" / "half-a-run").write_text("")
    a_campaign(tmp_path, "bad").run()
    assert not (tmp_path / "out" / "bad" / "half-a-run").exists()
    assert (tmp_path / "out" / "earlier" / "bad" / "half-a-run").exists()


def test_what_is_named_is_run_though_it_passed(tmp_path: Path) -> None:
    a_campaign(tmp_path, "good").run()
    a_campaign(tmp_path, "good", named=True).run()
    assert ran(tmp_path) == ["good", "good"]


def test_a_stage_that_cannot_finish_in_time_is_not_begun_and_a_shorter_one_is(tmp_path: Path) -> None:
    long, short = toy("bad", tmp_path, limit=90), toy("good", tmp_path, limit=20)
    short_of_time = a_campaign(tmp_path, budget=60.0)
    short_of_time.stages = [long, short]
    short_of_time.run()
    assert ran(tmp_path) == ["good"]
    assert "- **bad**: it may take 90 s, and 5" in short_of_time.page()
    assert short_of_time.status() == campaign.LEFT


def test_a_stage_that_hangs_is_ended_with_all_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it does not listen, and though a child of it left its process group."""
    monkeypatch.setattr(bounded, "GRACE", 0.5)
    hanging = a_campaign(tmp_path, "hang", limit=1.5)
    start = time.monotonic()
    hanging.run()
    assert time.monotonic() - start < 60  # of 600; the stage has 1.5 s, and as long as is allowed to end
    outcome = json.loads((tmp_path / "out" / "hang" / "result.json").read_text())
    assert outcome["outcome"] == page.TIMED_OUT
    assert outcome["reason"].endswith("it had come to: came as far as this")
    assert sleepers() == []
    assert hanging.status() == 1


def test_what_a_stage_leaves_behind_is_ended_too(tmp_path: Path) -> None:
    a_campaign(tmp_path, "orphan").run()
    assert sleepers() == []


def sleepers() -> list[str]:
    """Processes that a toy of this test's process started and nobody ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:
            continue
        if toys.HANG.encode() in words and f"{bounded.MARK}={os.getpid()}-".encode() in environment:
            found.append(process.name)
    return found


def test_output_is_shown_as_it_comes_and_kept(tmp_path: Path) -> None:
    shown: list[str] = []
    log = tmp_path / "log"
    ended = bounded.run(["sh", "-c", "echo one; exit 3"], log, 20, os.environ, shown.append)
    assert (ended.status, "".join(shown), log.read_text()) == (3, "one\n", "one\n")


def test_a_signal_that_ends_a_command_is_its_status_as_a_shell_counts_it(tmp_path: Path) -> None:
    ended = bounded.run(["sh", "-c", "kill -11 $$"], tmp_path / "log", 20, os.environ, lambda text: None)
    assert ended.status == 139


def test_stages_have_names_of_their_own_and_bounds_that_fit_a_command(tmp_path: Path) -> None:
    assert len({stage.name for stage in STAGES}) == len(STAGES)
    assert not {stage.name for stage in STAGES} & {stage.part for stage in STAGES}
    assert all(0 < stage.limit <= MOST for stage in STAGES)
    assert campaign.BUDGET + campaign.RESERVE < 600, "seconds that a command on a lent machine has"
    programs = Path(campaign.__file__).parent
    assert all((programs / f"{stage.command[0]}.py").is_file() for stage in STAGES)


def test_stages_stand_in_order_of_value() -> None:
    places = [[stage.name for stage in STAGES].index(name) for name in IN_ORDER]
    assert places == sorted(places)


def test_what_went_wrong_can_be_told_alone(tmp_path: Path) -> None:
    whole = a_campaign(tmp_path, "good", "bad")
    assert whole.what_went_wrong() == ""
    whole.run()
    assert whole.what_went_wrong().startswith("\n## Failed\n\n- **bad** (")
    assert "good" not in whole.what_went_wrong()


@pytest.mark.parametrize(("seen", "times"), [(10, 2), (10_000, 1)])
def test_a_page_that_is_longer_than_what_is_seen_of_it_ends_in_what_went_wrong(
    seen: int, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "SEEN", seen)
    monkeypatch.setattr(campaign, "SIGNALS", ())
    campaign.carried_out(a_campaign(tmp_path, "bad"))
    assert capsys.readouterr().out.count("- **bad** (") == times


def test_stages_are_chosen_by_name_and_by_part_in_their_own_order() -> None:
    assert [stage.name for stage in choose(["bench", "facts"])][:2] == ["facts", "targets"]
    assert {stage.part for stage in choose(["sweeps"])} == {"sweeps"}


def test_a_gpu_is_measured_in_full_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(scale.VARIABLE, raising=False)
    assert scale.chosen() is scale.full()
    monkeypatch.setenv(scale.VARIABLE, "tiny")
    with pytest.raises(UsageError, match="unknown COLLBENCH_GPU_SCALE 'tiny'; choose from: full, small"):
        scale.chosen()


def test_the_reason_is_the_first_line_that_says_what_is_wrong() -> None:
    assert said.reason("a\ncollbench: error: no\nb\n") == "collbench: error: no"
    assert said.reason("x.SomeError: why\nerror: no\n  FAILED: yes\n") == "FAILED: yes"
    assert said.reason("a\nx.SomeError: why\nb") == "x.SomeError: why"
    assert said.reason("a\nlast\n\n") == "last"
    assert said.reason("") == "nothing was printed"
