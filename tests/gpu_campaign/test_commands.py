"""What the programs of tests/gpu make of commands that end well, badly, or in nothing."""

import shutil
from pathlib import Path

import pytest

from collbench.runs.file import Run
from tests.conftest import ROOT
from tests.gpu import facts, said, settings, sweeps, verified


@pytest.mark.parametrize(
    ("status", "text", "outcome", "line"),
    [
        (0, "\n1 x H100\nmore\n", said.GOOD, "= collbench topo: 1 x H100\n"),
        (1, "collbench: error: a link is down", said.BAD, "FAILED: collbench topo: collbench: error: a link is down\n"),
        (0, "", said.BAD, "FAILED: collbench topo: nothing was printed\n"),
        (None, "as far as this", said.BAD, "FAILED: collbench topo: as far as this\n"),
    ],
)
def test_a_topology_is_a_fact_and_none_is_a_failure(
    status: int | None, text: str, outcome: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert facts.of_topology(status, text) == outcome
    assert capsys.readouterr().out == line


@pytest.mark.parametrize(
    ("status", "text", "outcome", "reason"),
    [
        (0, "6 right, 2 skipped, 0 wrong, 0 failed\n", said.GOOD, ""),
        (1, "6 right, 2 skipped, 1 wrong, 0 failed\n", said.BAD, "collbench verify ended with exit status 1: 6 right"),
        (None, "ok\n", said.BAD, "collbench verify ran out of time: ok"),
        (0, "", said.BAD, "collbench verify ended with exit status 0: nothing was printed"),
    ],
)
def test_verify_is_taken_at_its_status_and_its_count(
    status: int | None,
    text: str,
    outcome: int,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(verified.probe, "available", lambda: True)
    monkeypatch.setattr(sweeps, "printed", lambda command: (status, text))
    assert verified.main([]) == outcome
    printed = capsys.readouterr().out
    assert (f"= collbench verify: {text}" in printed) is ("right" in text)
    assert f"FAILED: {reason}" in printed if reason else said.WRONG not in printed


@pytest.mark.parametrize("names", [("as-is", "A=1"), ("as-is",)])
def test_of_two_settings_the_environment_as_it_is_comes_first(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And both must be there."""
    for name in names:
        shutil.copytree(ROOT / "results" / "cpu-2-ranks-epyc", tmp_path / name)
    compared: list[str] = []

    def summary(*runs: Run) -> str:
        compared.extend(run.path.parent.name for run in runs)
        return "B is as A"

    monkeypatch.setattr(settings.probe, "available", lambda: True)
    monkeypatch.setattr(settings, "summary", summary)
    monkeypatch.setattr(sweeps, "printed", lambda command: (1, ""))
    status, printed = settings.main(["--out", str(tmp_path)]), capsys.readouterr().out
    both = len(names) == 2
    assert compared == (list(names) if both else [])
    assert (status, "= B is as A" in printed) == (said.GOOD if both else said.BAD, both)
    assert ("FAILED: collbench sweep --ab left 1 run files, exit status 1" in printed) is not both
