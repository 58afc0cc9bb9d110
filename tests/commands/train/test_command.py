"""`collbench train` as a user meets it: rankings, sizes, systems, money, runs, explanations, and wrong words."""

import re
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from collbench.commands.train.rows import PlannedStep
from collbench.results import Reported
from collbench.runfile.store import read
from tests.commands.conftest import write_run
from tests.conftest import ROOT, Command, case

GPT3 = ("--model", "gpt3-175b", "--on", "dgx-a100", "--gpus", "1024", "--batch", "1536")
SMALL = ("--model", "llama3-8b", "--on", "dgx-h100", "--gpus", "16", "--batch", "64")
RUN = str(ROOT / "results" / "cpu-2-ranks")


def planned(folder: Path, purpose: str = "layout") -> list[PlannedStep]:
    rows = [cast(PlannedStep, row) for row in read(folder).results]
    assert all(isinstance(row, PlannedStep) for row in rows)
    return [row for row in rows if row.purpose == purpose]


def test_the_published_layout_is_among_the_best_three(here: Command, tmp_path: Path) -> None:
    done = here("train", *GPT3, "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    best = planned(tmp_path / "out")[:3]
    (row,) = (row for row in best if row.implementation.startswith("tp8 pp16 "))
    assert 0.9 * 32 < row.typical < 1.1 * 32
    assert row.low < row.typical < row.high
    assert row.typical < 1.05 * min(one.typical for one in best)
    assert re.search(r"^[123]  tp8 pp16 dp8 .* 31\.\d s", done.stdout, re.M), done.stdout
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["run.jsonl"]


def test_a_scaling_says_what_it_keeps_of_the_rate(here: Command, tmp_path: Path) -> None:
    done = here("train", *GPT3, "--scale", "8..2048", "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = planned(tmp_path / "out", "scale")
    assert [row.gpus for row in rows] == [64, 128, 256, 512, 1024, 2048]
    assert [row.tokens / row.typical / row.gpus for row in rows] == sorted(
        (row.tokens / row.typical / row.gpus for row in rows), reverse=True
    )
    assert re.search(r"^ +32  none: .* short with", done.stdout, re.M)
    share = rows[-1].tokens / rows[-1].typical / rows[-1].gpus / (rows[0].tokens / rows[0].typical / rows[0].gpus)
    assert f"2,048 GPUs keep {share:.0%} of the tokens/s per GPU of 64 with the same batch" in done.stdout


def test_interconnects_are_compared_with_as_many_gpus(here: Command, tmp_path: Path) -> None:
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


def test_a_price_has_the_cost_of_each_size(here: Command, tmp_path: Path) -> None:
    done = here("train", *GPT3, "--price", "2.5", "--out", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = planned(tmp_path / "out", "cost")
    cheapest = min(rows, key=lambda row: row.cost)
    assert re.search(rf"^ +{cheapest.gpus:,} .*Pareto", done.stdout, re.M)
    assert re.search(r"^answer: .*; 1,024 GPUs: \d+ days .* USD", done.stdout, re.M)
    assert "a run of 3e+11 tokens at 2.5 USD a GPU-hour" in done.stdout
    assert {row.currency for row in rows} == {"USD"}
    done = here("train", *SMALL, "--price", "2.5EUR")
    assert done.returncode == 0, done.stderr
    assert "USD" not in done.stdout
    assert re.search(r"^ +16 +[\d,]+ days \([\d,]+ \.\. [\d,]+\) +[\d.]+ M EUR \([\d.]+ [kM] \.\. ", done.stdout, re.M)


def test_an_anchor_moves_computing_alone(here: Command, tmp_path: Path) -> None:
    plain = here("train", *GPT3, "--layout", "tp8 pp16 mb1", "--out", "plain")
    anchored = here("train", *GPT3, "--layout", "tp8 pp16 mb1", "--anchor", "40s", "--out", "anchored")
    assert plain.returncode == anchored.returncode == 0, anchored.stderr
    before, after = (planned(tmp_path / name)[0] for name in ("plain", "anchored"))
    assert after.typical == pytest.approx(40, rel=1e-4)
    assert after.parts["tensor_parallel"] == before.parts["tensor_parallel"]
    assert after.parts["computing"] > before.parts["computing"]
    assert "anchored on tp8 pp16 dp8 mb1 ddp full" in anchored.stdout


def test_a_run_is_planned_on_by_the_system_that_is_fitted_to_it(here: Command, tmp_path: Path) -> None:
    log = [
        Reported(case(nbytes=2**power, ranks=8), "nccl", "gpu", 4e-5 + 2**power / 1e11, "mean of 20")
        for power in range(10, 31, 4)
    ]
    write_run(tmp_path / "log", *log, imported={"tool": "nccl-tests"}, topology={"platform": "gpu", "ranks": 8})
    assert here("predict", "dgx-h100", "--fit", "log", "-o", "mine.toml").returncode == 0
    model = ("train", "--model", "gpt2-small", "--gpus", "8", "--batch", "64", "--layout", "tp4")
    for name in ("mine.toml", "dgx-h100"):
        done = here(*model, "--on", name, "--out", f"on-{name}")
        assert done.returncode == 0, done.stderr
    mine, preset = (planned(tmp_path / f"on-{name}")[0].parts["tensor_parallel"] for name in ("mine.toml", "dgx-h100"))
    assert mine > 1.5 * preset
    done = here(*model, "--on", "log")
    assert (done.returncode, "--fit log -o" in done.stderr, done.stderr.count("\n")) == (2, True, 1), done.stderr


def test_the_first_line_answers_as_the_first_row_does_and_rows_stand_in_the_order_that_they_show(here: Command) -> None:
    done = here("train", *SMALL, "--price", "2", "--compare-interconnects", "dgx-a100", "--out", "out")
    assert done.returncode == 0, done.stderr
    answer, blank, *lines = done.stdout.splitlines()[2:]
    rows = [re.match(r" *\d+  (\S.*?) +([\d.]+) s .* ([\d.]+)%  .* ([\d.]+) GiB$", line) for line in lines]
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
    assert "Fastest first; of layouts within 1 %" in done.stderr


def test_a_plan_takes_one_system_and_a_part_of_a_name(here: Command) -> None:
    layout = ("--layout", "dp16 zero2 mb1 selective", "--top", "1")
    done = here("train", "--model", "8b", *SMALL[2:], *layout, "--out", "part")
    assert "--model 8b means llama3-8b\n" in done.stderr
    done = here("train", "--on", "dgx-h100,dgx-a100")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--on dgx-h100 --compare-interconnects dgx-a100" in done.stderr
