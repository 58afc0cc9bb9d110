"""`collbench sweep --ab` as a user meets it: two settings, ranks of each, two run files."""

import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.analysis.compare import compare
from collbench.cases import ROUNDS
from collbench.commands.sweep.ab import folders, parse_setting, verdicts
from collbench.measure import supervisor
from collbench.measure.interleave import LEAST
from collbench.results import Failed, Measurement
from collbench.runfile.schema import Header, Interleaved
from collbench.runfile.store import Run, read
from tests.commands.conftest import RIGHT
from tests.commands.held_ranks import go, held
from tests.commands.sweep.test_command import Start, measuring
from tests.conftest import Command, measurement

MPI = "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"
QUICK = ("sweep", "--on", "cpu", "-b", "1K", "-e", "1K", "--starts", "1", "--no-plot", "--out", "out")
LONG = (*QUICK, "-b", "8", "-e", "64K", "-f", "64", "-n", "2", "--impl", "mpi")


def both(folder: Path, *names: str) -> tuple[Run, Run]:
    first, second = (read(folder / "out" / name) for name in names)
    return first, second


def shown(text: str) -> dict[str, str]:
    return dict(re.findall(r"^ +1 KiB +(\S+) .*x .* (\w+)$", text, re.M))


def test_both_settings_are_measured_in_turn_into_a_run_file_each(here: Command, tmp_path: Path) -> None:
    text = f"{MPI}=ring -NCCL_ALGO WORD='two words'"
    done = here(*QUICK, "--impl", "mpi,two-shot", "--ab", text, "--budget", "0.05", NCCL_ALGO="Tree")
    assert done.returncode == 0, done.stderr
    name = f"{MPI}=ring,without-NCCL_ALGO,WORD=two_words"
    runs = both(tmp_path, "as-is", name)
    for run in runs:
        assert run.complete
        assert [result.implementation for result in run.results] == ["mpi", "two-shot"]
        for result in run.results:
            assert isinstance(result, Measurement)
            assert LEAST <= len(result.rounds) <= ROUNDS
            assert sum(result.rounds) == len(result.seconds)
            assert result.right
        assert run.header.sweep.sampling.budget == 0.05
    as_is, changed = (run.header.environment.variables for run in runs)
    own = {name: supervisor.LOCAL_ONLY[name] for name in ("OMPI_MCA_btl", "UCX_TLS")}
    assert as_is == {"NCCL_ALGO": "Tree"} | own
    assert changed == {MPI: "ring", "WORD": "two words"} | own
    first, second = (run.header.interleaved for run in runs)
    assert first.id == second.id
    assert (first.setting, second.setting) == ("", text)
    assert first.cores == second.cores != ()
    assert re.search(
        rf" 1 KiB  A mpi.* +\S+ [num]*s .* {RIGHT}\n +1 KiB  B mpi.* +\S+ [num]*s .* {RIGHT}$", done.stdout, re.M
    )
    assert f"B: {text}" in done.stdout
    assert f"run file: out/{name}/run.jsonl" in done.stdout
    assert f"collbench compare out/as-is out/{name}" in done.stdout


@pytest.mark.usefixtures("made_up_ranks")
@pytest.mark.parametrize(("factor", "word"), [("1", "OK"), ("1.1", "SLOW"), ("0.9", "FAST")])
def test_a_setting_that_slows_one_way_down_is_seen_there(here: Command, tmp_path: Path, factor: str, word: str) -> None:
    done = here(*QUICK, "--impl", "mpi,ring-flags", "--ab", "SLOW=1", "--ab", f"SLOW={factor}", "--budget", "0.3")
    assert done.returncode == 0, done.stderr
    assert shown(done.stdout) == {"mpi": "OK", "ring-flags": word}
    second = "SLOW=1,again" if factor == "1" else f"SLOW={factor}"
    assert ("all differences are noise (an A/A test)" in done.stderr) == (factor == "1")
    rows = compare(*both(tmp_path, "SLOW=1", second)).rows
    assert [row.ratio for row in rows] == pytest.approx([1, float(factor)], abs=0.02)
    assert f"{rows[1].ratio:.3f}x" in done.stdout


def test_a_second_folder_that_is_taken_is_refused_and_the_first_not_made(here: Command, tmp_path: Path) -> None:
    taken = tmp_path / "out" / "X=1"
    taken.mkdir(parents=True)
    (taken / "run.jsonl").write_text("mine\n")
    done = here(*QUICK, "--ab", "X=1")
    assert done.returncode == 2
    assert "there is a run already; choose another --out" in done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["X=1"]
    assert (taken / "run.jsonl").read_text() == "mine\n"


@pytest.mark.full
def test_a_killed_rank_costs_its_setting_one_row(start: Start, tmp_path: Path) -> None:
    process = start(*LONG, "--ab", "X=1", **held(tmp_path, "out/as-is", "out/X=1", rows=1))
    ranks = measuring(process, tmp_path, "as-is", "X=1", rows=1)
    victims = [pid for pid in ranks if b"X=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
    assert len(victims) == 2
    os.kill(victims[-1], signal.SIGKILL)
    go(tmp_path)
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 1
    assert re.search(r"A mpi.* \S+ [num]s .*\n.* B mpi.* FAILED: rank \d was ended by signal 9", output)
    base, other = both(tmp_path, "as-is", "X=1")
    assert base.complete
    assert other.complete
    assert all(isinstance(result, Measurement) for result in base.results)
    assert sum(isinstance(result, Failed) for result in other.results) == 1
    assert len(base.results) == len(other.results) == 3


def test_words_become_a_setting_and_a_folder_that_every_file_system_takes() -> None:
    text = "A=1 b= -C D='x y' E=k=v"
    assert parse_setting(text) == {"A": "1", "b": "", "C": None, "D": "x y", "E": "k=v"}
    assert parse_setting("") == {}
    assert folders(["", "NCCL_ALGO=Ring NCCL_PROTO=LL"]) == ["as-is", "NCCL_ALGO=Ring,NCCL_PROTO=LL"]
    assert folders(["", ""]) == ["as-is", "as-is,again"]
    assert folders(["P=/a/b:c", "-P"]) == ["P=_a_b_c", "without-P"]
    assert len(folders(["P=" + "x" * 500])[0]) < 200


def test_where_no_row_has_a_time_under_both_settings_it_says_so() -> None:
    run = Run(Path("a"), Header(interleaved=Interleaved(id="one")), (measurement(),), True)
    assert "no row has a time" in "\n".join(verdicts(compare(run, replace(run, results=()))))
