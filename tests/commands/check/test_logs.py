"""Checks of logs that hold a table several times, or a single size: the worst speaks for the machine."""

import html
from itertools import permutations
from pathlib import Path

import pytest

import collbench
from collbench.analysis.judgement import Word
from collbench.commands.check import outputs as verdicts
from collbench.commands.check.judge import CheckResult
from tests.conftest import ROOT, Command

REPORTS = ROOT / "tests" / "commands" / "formats" / "reports"
BOTH = (REPORTS / "F1-bad-then-good.log").read_text()
HALF = BOTH.rindex("# nThread")
SLOW, FAST = BOTH[:HALF], BOTH[HALF:]  # 91 and 365 GB/s


def judged(folder: Path, *tables: str, against: str = "") -> list[CheckResult]:
    """The verdicts on the runs of a log, against the model of eight H100 or another log."""
    (folder / "in.log").write_text("".join(tables))
    runs = collbench.import_(folder / "in.log")
    if not against:
        found = [collbench.check(run=run, on="dgx-h100") for run in runs]
    else:
        (folder / "base.log").write_text(against)
        base = folder / f"base-{len(list(folder.iterdir()))}"
        collbench.import_(folder / "base.log", out=base)
        found = [collbench.check(run=run, reference=base) for run in runs]
    return [result for result in found if result]


@pytest.mark.parametrize("against", ["", FAST])
@pytest.mark.parametrize("tables", [*sorted(set(permutations((SLOW, FAST, FAST)))), (SLOW, FAST), (FAST, SLOW)])
def test_of_several_rounds_the_worst_is_judged_wherever_it_stands(
    tmp_path: Path, tables: tuple[str, ...], against: str
) -> None:
    (result,) = judged(tmp_path, *tables, against=against)
    assert result.word is Word.SLOW
    assert {size.word for size in result.sizes} == {Word.SLOW}
    assert f"{len(tables)} rounds, up to 4.00x apart" in result.line


def test_rounds_that_are_alike_are_as_one_of_them(tmp_path: Path) -> None:
    (once,) = judged(tmp_path, FAST, against=FAST)
    (twice,) = judged(tmp_path, FAST, FAST, against=FAST)
    assert once.word is twice.word is Word.OK
    assert "2 rounds, up to 1.00x apart" in twice.line


def test_tables_with_other_settings_are_judged_each_by_itself(tmp_path: Path) -> None:
    (result,) = judged(
        tmp_path, SLOW, FAST.replace("iters: 20", "iters: 100"), against=FAST.replace("iters: 20", "iters: 5")
    )
    assert {curve.implementation for curve in result.curves} == {"nccl@iters 20", "nccl@iters 100"}
    by_variables = judged(tmp_path, "export NCCL_PROTO=LL\n", SLOW, "export NCCL_PROTO=Simple\n", FAST, against=FAST)
    assert [result.word for result in by_variables] == [Word.SLOW, Word.OK]


def test_rounds_of_a_reference_are_joined_and_their_scatter_is_told(tmp_path: Path) -> None:
    (result,) = judged(tmp_path, FAST, against=SLOW + FAST + FAST)
    assert result.word is Word.OK
    assert "3 rounds, up to 4.00x apart" in result.compared


def test_settings_are_held_against_a_reference_that_has_one(tmp_path: Path) -> None:
    (result,) = judged(tmp_path, SLOW.replace("iters: 20", "iters: 100"), FAST, against=FAST)
    found = {curve.implementation: curve.word for curve in result.curves}
    assert found == {"nccl@iters 100": Word.SLOW, "nccl@iters 20": Word.OK}


def test_the_line_speaks_of_the_slowest_curve(tmp_path: Path) -> None:
    rows = [line for line in FAST.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    text = FAST
    for row in rows:
        *case, time, algbw, busbw, wrong = row.split()
        slow = [*case, f"{9 * float(time):.1f}", f"{float(algbw) / 9:.2f}", f"{float(busbw) / 9:.2f}", wrong]
        text = text.replace(row, " ".join(slow))
    (result,) = judged(tmp_path, text, against=FAST)
    assert result.word is Word.SLOW
    assert "(11 %)" in result.line


def cut(text: str) -> str:
    """The log without its footer, and with half of its last row."""
    rows = text[: text.index("# Out of bounds")].rstrip()
    return rows[: rows.rindex("\n") + 20]


@pytest.mark.filterwarnings("ignore::collbench.errors.Notice")
def test_what_a_log_lacks_is_told_with_the_verdict(tmp_path: Path) -> None:
    one_bad = FAST.replace("   float     sum", "   flaot     sum", 1)
    for text, told in ((cut(FAST), "stops before its end"), (cut(FAST), "left out: 1 row"), (one_bad, "left out: ")):
        for against in ("", SLOW):
            (result,) = judged(tmp_path, text, against=against)
            for shown in (
                verdicts.OUTPUTS["junit"](result),
                verdicts.line(result, "plain"),
                verdicts.line(result, "nagios"),
            ):
                assert told in html.unescape(shown)
            assert any(told in remark for remark in verdicts.document(result)["remarks"])
    (result,) = judged(tmp_path, FAST)
    assert result.remarks == ("assumed: NCCL 2.29",)


def test_a_folder_of_several_runs_names_them(here: Command, tmp_path: Path) -> None:
    (tmp_path / "two.log").write_text(FAST + FAST.replace("H100", "H200"))
    collbench.import_(tmp_path / "two.log", out=tmp_path / "runs")
    done = here("check", "--run", "runs", "--on", "dgx-h100")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    for run in (tmp_path / "runs").iterdir():
        assert f"runs/{run.name}" in done.stderr
        assert "or all: collbench check --fleet runs" in done.stderr
        assert here("check", "--run", f"runs/{run.name}", "--on", "dgx-h100").returncode == 3
