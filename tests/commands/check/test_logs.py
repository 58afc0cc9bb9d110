"""Checks of logs that hold a table several times, or a single size: the worst speaks for the machine."""

import html
import io
import json
import sys
from itertools import permutations
from pathlib import Path
from xml.etree import ElementTree

import pytest

import collbench
from collbench.analysis.judgement import Word
from collbench.cli.verdicts import junit
from collbench.commands.check import outputs as verdicts
from collbench.commands.check.judge import CheckResult
from collbench.errors import UsageError
from tests.conftest import ROOT, Command

REPORTS = ROOT / "tests" / "commands" / "formats" / "reports"
BOTH = (REPORTS / "F1-bad-then-good.log").read_text()
HALF = BOTH.rindex("# nThread")
SLOW, FAST = BOTH[:HALF], BOTH[HALF:]  # 91 and 365 GB/s


def scaled(text: str, slower: float) -> str:
    rows = [line for line in text.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    for row in rows:
        *case, time, algbw, busbw, wrong = row.split()
        figures = f"{slower * float(time):.1f}", f"{float(algbw) / slower:.2f}", f"{float(busbw) / slower:.2f}"
        text = text.replace(row, " ".join([*case, *figures, wrong]))
    return text


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


@pytest.mark.filterwarnings("ignore::collbench.errors.Notice")  # a rounded row is left out
@pytest.mark.parametrize("against", ["", FAST])
def test_what_slows_all_sizes_is_said_once_of_all_and_one_slow_size_is_not_all(tmp_path: Path, against: str) -> None:
    (result,) = judged(tmp_path, scaled(FAST, 1.5), against=against)
    assert "slow as a whole" in result.line
    assert "as expected" not in result.line
    row = next(line for line in FAST.splitlines() if line.split()[:1] == ["1073741824"])
    (result,) = judged(tmp_path, FAST.replace(row, scaled(row, 10)), against=FAST)
    assert result.word is Word.SLOW
    assert "as a whole" not in result.line


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
    text = scaled(FAST, 9)
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
                junit([verdicts.suite(result)]),
                verdicts.line(result, "plain"),
                verdicts.line(result, "nagios"),
            ):
                assert told in html.unescape(shown)
            assert any(told in remark for remark in verdicts.document(result)["remarks"])
    (result,) = judged(tmp_path, FAST)
    assert result.remarks == ("assumed: NCCL 2.29",)


HEALTHY = "\n".join(line for line in FAST.splitlines() if "float" not in line or line.split()[0] in ("1073741824",))


def test_a_folder_of_several_runs_and_logs_is_judged_line_by_line(here: Command, tmp_path: Path) -> None:
    (tmp_path / "two.log").write_text(FAST + FAST.replace("H100", "H200"))
    collbench.import_(tmp_path / "two.log", out=tmp_path / "in" / "runs")
    (tmp_path / "in" / "healthy.log").write_text(HEALTHY)
    (tmp_path / "in" / "wrong.log").write_text((REPORTS / "12b-corrupt.log").read_text())
    (tmp_path / "in" / "osu.txt").write_text(
        "# OSU MPI-CUDA Allreduce Latency Test v7.3\n# Size  Latency (us)\n8  1.20\n"
    )
    (tmp_path / "in" / "note.txt").write_text("hello\n")
    done = here("check", "in")
    heading, *rows = done.stdout.partition("\n\n")[0].splitlines()
    assert heading.split() == ["input", "collective", "ranks", "GPU", "busbw", "ratio"]
    assert [(row.split()[0], row.split()[-1]) for row in rows] == [
        ("wrong.log", "WRONG"),
        ("runs/1-allreduce", "SLOW"),
        ("runs/2-allreduce", "SLOW"),
        ("healthy.log", "OK"),
    ]
    refused, last = done.stdout.splitlines()[-2:]
    assert refused.startswith("refused: in/osu.txt: tables of OSU do not tell the number of ranks")
    assert last.startswith("collbench: WRONG 5 inputs: 1 WRONG, 2 SLOW, 1 OK, 1 refused; in/wrong.log WRONG, ")
    assert (done.returncode, done.stderr) == (3, "1 file without results\n")
    whole, alone = here("check", "in", "--json"), here("check", "in/healthy.log", "--json")
    inputs = json.loads(whole.stdout)["inputs"]
    assert [each["word"] for each in inputs] == ["WRONG", "SLOW", "SLOW", "OK", "UNKNOWN"]
    assert inputs[3] == json.loads(alone.stdout)
    suites = ElementTree.fromstring(here("check", "in", "--junit", "-").stdout)
    assert [len(suite.findall("testcase")) for suite in suites] == [3, 15, 15, 3, 1]
    assert here("check", "in/healthy.log", "in/osu.txt").returncode == 4
    assert here("check", "in/healthy.log", "in/osu.txt", "--ranks", "osu*=16").returncode == 4, "no GPU is named"
    assert here("check", "in/healthy.log", "in/note.txt", "--exit", "nagios").returncode == 3
    verbose = here("check", "in/runs", "-v").stdout
    assert verbose.count("\n    1 GiB   5.15 ms") == 4
    assert "runs/1-allreduce: collbench: SLOW allreduce" in verbose


def test_tables_of_a_log_are_judged_each_by_itself_and_kept_where_the_user_says(
    here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two.log").write_text(FAST + FAST.replace("H100", "H200"))
    done = here("check", "two.log", "-o", "kept")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:3]] == ["two.log", "two.log"]
    kept = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "kept").rglob("run.jsonl"))
    assert done.stderr.splitlines() == [f"run file: {path}" for path in kept]
    assert len(kept) == 2
    with pytest.raises(UsageError, match="holds 2 tables and runs"):
        collbench.check(run=tmp_path / "two.log")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "note.txt").write_text("hello\n")
    with pytest.raises(UsageError, match="holds 0 tables and runs"):
        collbench.check(run=tmp_path / "empty")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FAST.encode())))
    piped = here("check", "-", "--on", "dgx-h100")
    assert (piped.returncode, piped.stdout.splitlines()[-1][:24]) == (3, "collbench: SLOW allreduc")


def test_a_setting_is_cleared_where_only_some_sizes_of_a_round_are_slow(tmp_path: Path) -> None:
    slower = FAST
    for row in FAST.splitlines():
        if row.split()[:1] in (["4294967296"], ["8589934592"]):
            slower = slower.replace(row, scaled(row, 6))
    (tmp_path / "log").write_text(f"export NCCL_PROTO=LL\n{FAST}{slower}")
    result = collbench.check(run=tmp_path / "log")
    assert result
    assert "the first round was 6.0x faster" in result.line
    _, in_place = result.curves  # of which 4 and 8 GiB are slower, and all sizes a little
    assert in_place.word is Word.SLOW
    assert not in_place.reasons


def test_neither_a_folder_that_is_taken_nor_an_odd_name_costs_the_verdict(here: Command, tmp_path: Path) -> None:
    (tmp_path / "a\x1bb.log").write_text(FAST)
    for _ in range(2):
        done = here("check", ".", "-o", "kept", "-q")
        assert done.returncode == 3
    assert "not stored: " in done.stderr
    (tmp_path / "c.log").write_text(FAST)
    assert here("check", ".", "-v").stdout.replace("\n", "").isprintable()


@pytest.mark.filterwarnings("ignore::collbench.errors.Notice")
@pytest.mark.parametrize(
    ("name", "word", "told"),
    [
        ("F13-two-copies-without-mpi", Word.UNKNOWN, "2 copies of the test on 8 ranks ran side by side"),
        ("F18-one-rank", Word.UNKNOWN, "one rank alone: nothing crossed a link"),
        ("F15-two-rounds-3x-apart", Word.UNKNOWN, "2 rounds, up to 3.00x apart"),
        ("F1-bad-then-good", Word.SLOW, "the second round was 4.0x faster"),
        ("F1-good-then-bad", Word.SLOW, "the first round was 4.0x faster"),
    ],
)
def test_how_a_test_ran_limits_what_is_said_of_it(name: str, word: Word, told: str, tmp_path: Path) -> None:
    collbench.import_(REPORTS / f"{name}.log", out=tmp_path / "base")
    for against in ({}, {"on": "dgx-h100"}, {"reference": tmp_path / "base"}):
        result = collbench.check(run=REPORTS / f"{name}.log", **against)  # type: ignore[arg-type]
        assert result
        assert told in result.line
        assert result.word is (Word.SLOW if "reference" in against and "round" in told else word), against
        assert "unset" not in str([curve.reasons for curve in result.curves]), "a setting is as it is in every round"
