"""`collbench.pairs`: every pair once, real ranks, made-up GPUs, matrices, outliers, comparison."""

import json
import re
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import collbench as library
from collbench.cases import Sampling
from collbench.collectives import COLLECTIVES
from collbench.commands.scan import every_pair
from collbench.commands.scan.figure import figures
from collbench.commands.scan.matrices import lines, matrices
from collbench.commands.scan.rows import BOTH_WAYS, LATENCY, ONE_WAY, PATTERNS, PairMessages, PairTimes
from collbench.errors import UsageError
from collbench.measure.exchanges import COPY, IN_FLIGHT, Exchanges, together
from collbench.plots.kinds import PLAIN
from collbench.results import Skipped
from collbench.results.disturbed import Scheduling
from collbench.runfile.schema import Header, to_result
from collbench.runfile.store import Run, read
from tests.commands.conftest import write_run
from tests.commands.scan.made_up_pairs import EVERY, ROWS, row
from tests.conftest import Command, case
from tests.platforms.gpu.opening import Open, nothing_set, opened
from tools.stand_in.clocks import Apart
from tools.stand_in.cuda import Machine

__all__ = ["nothing_set", "opened"]

EXCHANGES: Any = {"collectives": (COLLECTIVES["sendrecv"],), "sizes": (4096,), "implementations": ("nccl",)}


def test_the_earlier_name_measures_every_pattern_of_every_pair_alone_and_at_once(here: Command, tmp_path: Path) -> None:
    words = "pairs --on cpu --ranks 4 --size 64K --impl mpi,copy --out out --json j"
    done = here(*words.split())
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("collbench: `collbench pairs` is `collbench scan --pairs` now")
    results = read(tmp_path / "out").results
    for (name, nbytes, pattern, _), rows in matrices(results).items():
        assert name.startswith(("mpi", "copy"))
        assert (nbytes, len(rows)) == (8 if pattern == LATENCY else 65536, 12 if pattern == ONE_WAY else 6)
        assert all(1e-9 < seconds < 1 for of in rows for seconds in of.times)
    assert len(matrices(results)) == 2 * 2 * len(PATTERNS)
    assert [to_result(line) for line in json.loads((tmp_path / "j").read_text())] == list(results)
    assert (tmp_path / "out" / "pairs.png").stat().st_size > 10_000
    assert re.search(r"^mpi.*, one way, at once, 64 KiB: GB/s\nfrom +0 +1 +2 +3$", done.stdout, re.MULTILINE)


@pytest.mark.filterwarnings("ignore:.*disturbed by other programs")
def test_the_function_of_the_library_returns_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = library.pairs(2, on="cpu", impl="library", size="16K")
    met = [(of.pair.pattern, of.pair.at_once) for of in run.results if isinstance(of, PairTimes)]
    assert met == [(LATENCY, False), (ONE_WAY, False), (ONE_WAY, False), (BOTH_WAYS, False)]
    assert not list(tmp_path.iterdir())  # nothing is stored


def test_made_up_gpus_send_by_nccl_by_copies_and_by_kernels(opened: Open) -> None:
    of, names = case("sendrecv", 4096, ranks=2, work=PairMessages()), ["nccl", "copy", "kernel"]
    for machine, skipped in (({}, []), ({"has_nccl": False}, ["nccl"])):
        platform = opened(Machine(2, **machine), works=(PairMessages(),), sampling=Sampling(timeout=5.0), **EXCHANGES)
        results = list(every_pair.measure(of, names, platform, Sampling(), lambda *_: None))
        assert [each.implementation for each in results if isinstance(each, Skipped)] == skipped
        met = Counter((each.implementation, each.pair.pattern) for each in results if isinstance(each, PairTimes))
        counts = product([name for name in names if name not in skipped], [(ONE_WAY, 2), (BOTH_WAYS, 1)])
        assert met == {(name, pattern): count for name, (pattern, count) in counts}


def test_a_slow_pair_shows_however_long_the_host_takes_to_enqueue(opened: Open) -> None:
    machine = Machine(4, nccl_seconds=1.0, slower={2: 2.0})
    platform = opened(machine, works=(PairMessages(),), sampling=Sampling(graph=False), **EXCHANGES | {"ranks": 4})
    exchanges = Exchanges(case("sendrecv", 4096, ranks=4), "nccl", platform)
    machine.clock, machine.host_delay = Apart(), 3.0
    for to, expected in (([1, 0, 3, 2], {(0, 1): 1.0, (2, 3): 2.0}), ([1, 0, None, None], {(0, 1): 1.0})):
        busy = [rank for pair in expected for rank in pair]
        taken = exchanges.seconds(exchanges.prepared(to), busy, launches=1, samples=2, messages=1)
        assert {pair: together(taken, pair)[0] for pair in expected} == {
            pair: [expected[pair]] * 2 for pair in expected
        }


def test_a_sample_keeps_to_a_quarter_of_the_launch_queue_while_the_gate_holds_it(opened: Open) -> None:
    for devices, ranks, count, most in ((2, 2, IN_FLIGHT, 32), (1, 2, IN_FLIGHT, 16), (2, 2, 16, 4), (1, 20, 2, 1)):
        changes = EXCHANGES | {"ranks": ranks}
        platform = opened(Machine(devices), works=(PairMessages(),), sampling=Sampling(graph=False), **changes)
        exchanges = Exchanges(case("sendrecv", 4096, ranks=ranks), COPY, platform)
        assert exchanges.calibrate([1, 0, *[None] * (ranks - 2)], 3600.0, count) == most
    idle = Exchanges(exchanges.case, "nccl", platform).prepared([None] * ranks)
    assert platform.clock.most_held(idle) >= 1, "a process may have no part in a round"


def test_a_sample_counts_where_each_rank_had_its_core_though_a_receiver_has_no_time() -> None:
    assert together({0: [1.0, -2.0, 3.0], 1: [0.0, 1.0, -0.0]}, (0, 1)) == ([1.0, 2.0, 3.0], [1.0])


def test_matrices_are_of_what_was_measured() -> None:
    at_once = [row(*pair, seconds=2e-4, at_once=True) for pair in EVERY]
    text = "\n".join(lines([*ROWS, *at_once]))
    assert "mpi, one way, alone, 1 MiB: GB/s\nfrom      0      1      2\n   0          10.5   10.5" in text
    assert "at once 2.00x the time of each pair alone" in text
    assert "*" not in text
    rows = [replace(each, scheduling=Scheduling(0.9)) if each.pair.receiver == 2 else each for each in ROWS]
    text = "\n".join(lines(rows))
    assert ("10.5  10.5*" in text, "\n*: 2 of 6, disturbed" in text) == (True, True)
    ((_, figure),) = figures(Run(Path("run.jsonl"), Header(), tuple(rows), True), PLAIN)
    assert sum("*" in number.get_text() for number in figure.axes[0].texts) == 2


def test_compare_names_the_pair_that_became_slower_and_plot_draws_a_run_again(here: Command, tmp_path: Path) -> None:
    for name, rows in (("base", [row(*pair, seconds=1e-4) for pair in EVERY]), ("new", ROWS)):
        write_run(tmp_path / name, *rows, topology={"name": "3 ranks", "platform": "cpu", "ranks": 3})
    done = here("compare", "base", "new")
    assert done.returncode == here("plot", "new").returncode == 0, done.stderr
    slower = [part for part in done.stdout.split("\n\n") if part.splitlines()[-1].endswith("SLOW") and "rank" in part]
    assert ["rank 2 > rank 0, one way" in part for part in slower] == [True]
    assert (tmp_path / "new" / "pairs.png").exists()


def test_what_cannot_be_is_refused_in_a_line() -> None:
    for words, said in (
        ({"on": "cpu", "ranks": 1}, "ranks=1 has no pairs"),
        ({"on": "cpu", "impl": "ring"}, "unknown impl='ring'; choose from: mpi, copy, kernel"),
        ({"on": "cpu", "patterns": "there"}, "unknown patterns='there'; choose from: latency, one-way, both-ways, all"),
        ({"on": "cpu", "size": 8}, "size=8 is impossible"),
        ({"on": "dgx-h100"}, "unknown on='dgx-h100'"),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            library.pairs(**words)  # type: ignore[arg-type]
