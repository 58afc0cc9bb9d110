"""`collbench train` as a user meets it: rankings, sizes, systems, money, runs, explanations, and wrong words."""

import re
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import cast

import pytest

from collbench.results import PlannedStep
from collbench.runfile.store import read
from collbench.units import format_seconds
from tests.conftest import ROOT, Command, drawn_again

GPT3 = ("--model", "gpt3-175b", "--on", "dgx-a100", "--gpus", "1024", "--batch", "1536")
SMALL = ("--model", "llama3-8b", "--on", "dgx-h100", "--gpus", "16", "--batch", "64")
RUN = str(ROOT / "results" / "cpu-2-ranks")
TINY = 'name = "mine"\nlayers = 4\nhidden = 256\nheads = 4\nsequence = 128\nvocabulary = 1000\n'


def planned(folder: Path, purpose: str = "layout") -> list[PlannedStep]:
    """Rows of that purpose of a run."""
    rows = [cast(PlannedStep, row) for row in read(folder).results]
    assert all(isinstance(row, PlannedStep) for row in rows)
    return [row for row in rows if row.purpose == purpose]


def test_the_published_layout_is_among_the_best_three(here: Command, tmp_path: Path) -> None:
    """GPT-3 on 1,024 A100: TP 8, PP 16 within ten per cent of its 32 seconds."""
    done = here("train", *GPT3, "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    best = planned(tmp_path / "out")[:3]
    (row,) = (row for row in best if row.implementation.startswith("tp8 pp16 "))
    assert 0.9 * 32 < row.typical < 1.1 * 32
    assert row.low < row.typical < row.high
    assert row.typical < 1.05 * min(one.typical for one in best)
    assert re.search(r"^  [123]  tp8 pp16 dp8 .* 31\.\d s", done.stdout, re.M), done.stdout
    assert "nothing here is measured" in done.stderr
    assert drawn_again(here, tmp_path / "out") == ["layouts.png", "memory.png"]


def test_every_row_adds_up_and_fits(here: Command, tmp_path: Path) -> None:
    done = here("train", *SMALL, "--top", "30", "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = planned(tmp_path / "out")
    assert len(rows) > 10
    for row in rows:
        assert row.needed <= row.capacity == 80 * 2**30
        assert row.gpus == 16
        sizes = [int(size) for size in re.findall(r"\b(?:tp|pp|cp|dp)(\d+)", row.implementation)]
        assert prod(sizes) == 16, row.implementation


def test_a_scaling_says_where_it_leaves_which_efficiency(here: Command, tmp_path: Path) -> None:
    done = here("train", *GPT3, "--scale", "8..2048", "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = planned(tmp_path / "out", "scale")
    assert [row.gpus for row in rows] == [64, 128, 256, 512, 1024, 2048]
    assert [row.tokens / row.typical / row.gpus for row in rows] == sorted(
        (row.tokens / row.typical / row.gpus for row in rows), reverse=True
    )
    assert re.search(r"^ +32  none: .* short with", done.stdout, re.M)
    assert re.search(r"below 90% from about \d+ GPUs on, below 80% from .* on, below 70% nowhere", done.stdout)
    assert (tmp_path / "out" / "efficiency.png").stat().st_size > 5000


def test_interconnects_are_compared_with_as_many_gpus(here: Command, tmp_path: Path) -> None:
    """Also on racks of 72, of which 64 are used."""
    names = "dgx-h100,ethernet-100g-tcp,gb200-nvl72"
    done = here("train", *GPT3, "--compare-interconnects", names, "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row.system: row for row in planned(tmp_path / "out", "interconnect")}
    assert list(rows) == ["DGX A100", "DGX H100", "A100 on 100 Gb/s Ethernet", "GB200 NVL72"]
    itself = planned(tmp_path / "out")[0].typical
    assert rows["A100 on 100 Gb/s Ethernet"].typical > rows["DGX A100"].typical == itself > rows["DGX H100"].typical
    assert rows["GB200 NVL72"].typical < rows["DGX H100"].typical
    for name in rows:
        assert re.search(rf"^{re.escape(name)} +1,024  ", done.stdout, re.M), name


def test_a_deadline_picks_the_cheapest_size(here: Command, tmp_path: Path) -> None:
    """By the tokens that GPT-3 was trained on, which are said; where nobody meets it, the quickest is named."""
    done = here("train", *GPT3, "--price", "2.5", "--deadline", "30d", "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = planned(tmp_path / "out", "cost")
    in_time = [row for row in rows if row.seconds <= 30 * 86400]
    cheapest = min(in_time, key=lambda row: row.cost)
    assert 0 < len(in_time) < len(rows)
    assert re.search(rf"^ +{cheapest.gpus:,} .*cheapest in time", done.stdout, re.M)
    assert done.stdout.count("cheapest in time") == 1
    assert "a run of 3e+11 tokens at 2.5 USD a GPU-hour" in done.stdout
    assert {row.currency for row in rows} == {"USD"}
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("restarts: "))
    failures = cheapest.gpus * cheapest.seconds / 86400 * 419 / 16384 / 54
    said = re.search(r"about (\d+) failures on ([\d,]+) GPUs, .*; a checkpoint every .*, 10 s each, and 10 min", line)
    assert said, line
    assert float(said[1]) == pytest.approx(failures, rel=0.05)
    assert said[2] == f"{cheapest.gpus:,}"
    assert (tmp_path / "out" / "pareto.png").stat().st_size > 5000
    done = here("train", *SMALL, "--price", "2.5EUR", "--deadline", "1h", "--out", "none")
    assert done.returncode == 0, done.stderr
    assert "USD" not in done.stdout
    assert re.search(r"^ +16 +[\d,]+ days \([\d,]+ \.\. [\d,]+\) +[\d.]+ M EUR \([\d.]+ [kM] \.\. ", done.stdout, re.M)
    assert re.search(r"^restarts: about [\d.]+ failures on 384 GPUs", done.stdout, re.M)
    assert "cheapest in time" not in done.stdout
    answer = done.stdout.splitlines()[0]
    assert "; none of 1 to 384 GPUs (--scale tries others) is done in 60 min: the quickest, " in answer
    quickest = min(planned(tmp_path / "none", "cost"), key=lambda row: row.seconds)
    assert f"the quickest, {quickest.gpus:,} GPUs as {quickest.implementation}: " in answer


def test_an_anchor_moves_computing_alone(here: Command, tmp_path: Path) -> None:
    plain = here("train", *GPT3, "--layout", "tp8 pp16 mb1", "--out", "plain")
    anchored = here("train", *GPT3, "--layout", "tp8 pp16 mb1", "--anchor", "40s", "--out", "anchored")
    assert plain.returncode == anchored.returncode == 0, anchored.stderr
    before, after = (planned(tmp_path / name)[0] for name in ("plain", "anchored"))
    assert after.typical == pytest.approx(40, rel=1e-4)
    assert after.parts["tensor_parallel"] == before.parts["tensor_parallel"]
    assert after.parts["computing"] > before.parts["computing"]
    assert "anchored on tp8 pp16 dp8 mb1 ddp full" in anchored.stdout


def test_a_precision_of_32_bits_takes_twice_as_long(here: Command, tmp_path: Path) -> None:
    """Products have half the rate, and everything else twice the bytes, but for scores of words and gradients."""
    for precision in ("bf16", "tf32"):
        words = ("--layout", "tp2 zero1 mb1", "--precision", precision, "--out", precision)
        done = here("train", *SMALL, *words)
        assert done.returncode == 0, done.stderr
    half, whole = (planned(tmp_path / name)[0] for name in ("bf16", "tf32"))
    for part in ("computing", "tensor_parallel"):
        assert 1.8 * half.parts[part] < whole.parts[part] < 2.05 * half.parts[part], part
    assert whole.memory["weights"] == 2 * half.memory["weights"]


def test_a_measured_run_is_planned_on_and_labelled(here: Command, tmp_path: Path) -> None:
    """Ranks instead of GPUs; computing is measured here, or said."""
    (tmp_path / "mine.toml").write_text(TINY)
    words = ("--model", "mine.toml", "--on", RUN, "--batch", "8", "--tflops", "0.05", "--memory", "4")
    done = here("train", *words, "--out", "points")
    fitted = here("train", *words, "--fitted", "--out", "fitted")
    assert done.returncode == fitted.returncode == 0, done.stderr + fitted.stderr
    assert "curves: measured in " in done.stdout
    assert "2 ranks of 2 ranks on" in done.stdout
    assert "curves: fitted to " in fitted.stdout
    points, fit = (planned(tmp_path / name)[0] for name in ("points", "fitted"))
    assert points.typical == pytest.approx(fit.typical, rel=0.2)
    assert points.gpus == 2


def test_what_does_not_fit_says_by_how_much_and_what_would(here: Command) -> None:
    """And what is named does."""
    words = ("train", "--model", "megatron-1t", "--on", "dgx-a100", "--gpus", "64", "--batch", "512")
    done = here(*words)
    assert done.returncode == 2
    assert re.search(r"fits 80 GiB: [\d.]+ GiB short with tp", done.stderr)
    way = re.search(r"these fit: (?:.*, )?(--gpus \d+)", done.stderr)
    assert way, done.stderr
    again = here(*words, *way[1].split(), "--out", "out")
    assert again.returncode == 0, again.stderr


def test_the_first_line_answers_as_the_first_row_does_and_rows_stand_in_the_order_that_they_show(here: Command) -> None:
    """By the step, and of steps within 1 % of the fastest of them by memory."""
    done = here("train", *SMALL, "--price", "2", "--compare-interconnects", "dgx-a100", "--out", "out")
    assert done.returncode == 0, done.stderr
    answer, blank, *lines = done.stdout.splitlines()
    rows = [re.match(r" +\d+  (\S.*?) +([\d.]+) s .* ([\d.]+)%  .* ([\d.]+) GiB ", line) for line in lines]
    shown = [(row[1], float(row[2]), float(row[4])) for row in rows if row]
    assert len(shown) == 10
    assert not blank
    name, step, memory = shown[0]
    assert answer.startswith(f"answer: {name}, {step:g} s a step (")
    assert f"MFU, {memory:.0f} of 80 GiB; " in answer
    assert "of the 9 others shown may be as fast; likely fastest: DGX H100, " in answer
    assert re.search(r"; 16 GPUs: .* days .* for .* USD", answer)
    begin = step
    for (_, one, less), (_, other, more) in pairwise(shown):
        assert other > 0.98 * one
        begin = begin if other <= 1.012 * begin else other
        assert other >= one or less <= more
    assert "Fastest first; layouts within 1 %" in done.stderr


def test_a_plan_takes_what_ifs_of_cards_and_one_system(here: Command, tmp_path: Path) -> None:
    """Gradients sent over slow cards are exposed; and an error names the option for several systems."""
    layout = ("--layout", "dp16 zero2 mb1 selective", "--top", "1")
    for folder, more in (("plain", ()), ("slow", ("--what-if", "nic.rate=1"))):
        done = here("train", *SMALL, *layout, *more, "--out", folder)
        assert done.returncode == 0, folder
    plain, slow = (planned(tmp_path / name)[0] for name in ("plain", "slow"))
    assert slow.parts["data_parallel"] > 2 * plain.parts["data_parallel"]
    assert slow.system.endswith("what if nic.rate=1")
    assert f"; {format_seconds(plain.typical)} a step as the system is described" in done.stdout.splitlines()[0]
    done = here("train", "--model", "8b", *SMALL[2:], *layout, "--out", "part")
    assert "--model 8b is taken for llama3-8b\n" in done.stderr
    for words, said in (
        (("--on", "dgx-h100,dgx-a100"), "--on dgx-h100 --compare-interconnects dgx-a100"),
        (("--what-if", "link-down=leaf0:spine0"), "is for `predict`"),
        (("--what-if", "nic.rate=x"), "nic.rate=x is impossible"),
        (("--on", RUN, "--what-if", "nic.rate=1"), "leave it out"),
    ):
        done = here("train", *words)
        assert (done.returncode, said in done.stderr, done.stderr.count("\n")) == (2, True, 1), done.stderr
