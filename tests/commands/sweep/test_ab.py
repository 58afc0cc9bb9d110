"""`collbench sweep --ab` as a user meets it: two settings, ranks of each, two run files."""

import os
import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.analysis.compare import compare
from collbench.commands.sweep.ab import folders, parse_setting, verdicts
from collbench.measure import supervisor
from collbench.measure.interleave import LEAST, ROUNDS
from collbench.results import Failed, Measurement
from collbench.runfile.header import Header, Interleaved
from collbench.runfile.store import Run, read
from tests.commands.conftest import RIGHT
from tests.commands.held_ranks import go, held
from tests.commands.sweep.test_command import Start, ranks_of, wait_for
from tests.conftest import Command, measurement

MPI = "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"
QUICK = ("sweep", "--on", "cpu", "-b", "1K", "-e", "1K", "--starts", "1", "--no-plot", "--out", "out")
LONG = (*QUICK, "-b", "8", "-e", "64K", "-f", "64", "-n", "2", "--impl", "mpi")


def both(folder: Path, *names: str) -> tuple[Run, Run]:
    """The runs in these two folders of `out`."""
    first, second = (read(folder / "out" / name) for name in names)
    return first, second


def times(*runs: Run) -> list[dict[str, Measurement]]:
    """The measurements of each run by implementation."""
    return [
        {result.implementation: result for result in run.results if isinstance(result, Measurement)} for run in runs
    ]


def shown(text: str) -> dict[str, str]:
    """The verdict of each implementation."""
    return dict(re.findall(r"^ +1 KiB +(\S+) .*x .* (\w+)$", text, re.M))


def begun(folder: Path, process: subprocess.Popen[str]) -> list[int]:
    """Wait until a case has been measured under both settings; the ranks of both."""
    paths = [folder / "out" / name / "run.jsonl" for name in ("as-is", "X=1")]
    wait_for(lambda: all(path.exists() and '"kind":"measurement"' in path.read_text() for path in paths))
    return [pid for pid in ranks_of(process) if b"hydra" not in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_both_settings_are_measured_in_turn_into_a_run_file_each(here: Command, tmp_path: Path) -> None:
    """Whole files of the same rows; the ranks had the variables; a row tells the ratio, the end where everything is."""
    text = f"{MPI}=ring -NCCL_ALGO WORD='two words'"
    done = here(*QUICK, "--impl", "mpi,two-shot", "--ab", text, "--budget", "0.05", NCCL_ALGO="Tree")
    assert done.returncode == 0, done.stderr
    name = f"{MPI}=ring,without-NCCL_ALGO,WORD=two_words"
    runs = both(tmp_path, "as-is", name)
    assert all(run.complete for run in runs)
    for run, measured in zip(runs, times(*runs), strict=True):
        assert list(measured) == ["mpi", "two-shot"]
        for result in measured.values():
            assert LEAST <= len(result.rounds) <= ROUNDS
            assert sum(result.rounds) == len(result.seconds)
            assert not result.mismatch
        assert run.header.sweep.sampling["budget"] == 0.05
    as_is, changed = (run.header.environment.variables for run in runs)
    assert as_is == {"NCCL_ALGO": "Tree", "UCX_TLS": supervisor.LOCAL_ONLY["UCX_TLS"]}
    assert changed == {MPI: "ring", "WORD": "two words", "UCX_TLS": supervisor.LOCAL_ONLY["UCX_TLS"]}
    first, second = (run.header.interleaved for run in runs)
    assert first.id == second.id
    assert (first.setting, second.setting) == ("", text)
    assert first.cores == second.cores != ()
    assert re.search(
        rf" 1 KiB  A mpi.* +\S+ [num]*s .* {RIGHT}\n +1 KiB  B mpi.* +\S+ [num]*s .* {RIGHT}$",
        done.stdout,
        re.M,
    )
    assert f"B: {text}" in done.stdout
    assert f"run file: out/{name}/run.jsonl" in done.stdout
    assert f"collbench compare out/as-is out/{name}" in done.stdout


@pytest.mark.usefixtures("made_up_ranks")
def test_equal_settings_have_equal_times_and_are_called_equal(here: Command, tmp_path: Path) -> None:
    done = here(*QUICK, "--impl", "mpi,ring-flags", "--ab", "X=1", "--ab", "X=1", "--budget", "0.3")
    assert done.returncode == 0, done.stderr
    assert "A and B are the same, so what differs is noise (an A/A test)" in done.stderr
    assert shown(done.stdout) == {"mpi": "same", "ring-flags": "same"}
    found = compare(*both(tmp_path, "X=1", "X=1,again"))
    assert [row.ratio for row in found.rows] == pytest.approx([1, 1], abs=0.02)


@pytest.mark.usefixtures("made_up_ranks")
@pytest.mark.parametrize(("factor", "verdict"), [("1.1", "slower"), ("0.9", "faster")])
def test_a_setting_that_slows_one_way_down_is_seen_there(
    here: Command, tmp_path: Path, factor: str, verdict: str
) -> None:
    """By a tenth, or speeds it up, while the machine itself becomes slower; the other way is as fast as ever."""
    done = here(*QUICK, "--impl", "mpi,ring-flags", "--ab", f"SLOW={factor}", "--budget", "0.3")
    assert done.returncode == 0, done.stderr
    assert shown(done.stdout) == {"mpi": "same", "ring-flags": verdict}
    found = compare(*both(tmp_path, "as-is", f"SLOW={factor}"))
    assert [row.ratio for row in found.rows] == pytest.approx([1, float(factor)], abs=0.02)
    assert f"{found.rows[1].ratio:.3f}x" in done.stdout
    assert re.search(r"A ring-flags .* ok\n.* B ring-flags .* ok\n", done.stdout)


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
    """The other setting's row has its time, and all later rows of both are measured by fresh ranks."""
    process = start(*LONG, "--ab", "X=1", **held(tmp_path, "out/as-is", "out/X=1", rows=1))
    victims = [
        pid for pid in begun(tmp_path, process) if b"X=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    ]
    assert len(victims) == 2
    os.kill(victims[-1], signal.SIGKILL)
    go(tmp_path)
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 1
    assert re.search(r"A mpi.* \S+ [num]s .*\n.* B mpi.* FAILED: a rank was ended by signal 9", output)
    base, other = both(tmp_path, "as-is", "X=1")
    assert base.complete
    assert other.complete
    assert all(isinstance(result, Measurement) for result in base.results)
    assert sum(isinstance(result, Failed) for result in other.results) == 1
    assert len(base.results) == len(other.results) == 3


def test_words_become_a_setting_and_a_folder_that_every_file_system_takes() -> None:
    """Values, nothing, not set; quotes as in a shell; `=` within a value; two folders, whatever the settings are."""
    text = "A=1 b= -C D='x y' E=k=v"
    assert parse_setting(text) == {"A": "1", "b": "", "C": None, "D": "x y", "E": "k=v"}
    assert parse_setting("") == {}
    assert folders(["", "NCCL_ALGO=Ring NCCL_PROTO=LL"]) == ["as-is", "NCCL_ALGO=Ring,NCCL_PROTO=LL"]
    assert folders(["", ""]) == ["as-is", "as-is,again"]
    assert folders(["P=/a/b:c", "-P"]) == ["P=_a_b_c", "without-P"]
    first, second = folders(["P=" + "x" * 500, "P=" + "x" * 501])
    assert first != second
    assert len(second) < 200


def test_verdicts_are_those_of_compare() -> None:
    """For all rows together; a row without a time under both settings has none."""
    seconds = tuple(1e-6 * (1 + 0.001 * (sample % 7)) for sample in range(48))
    base = replace(measurement(seconds=seconds), rounds=(6,) * 8)
    new = replace(base, seconds=tuple(2 * second for second in seconds))
    header = Header(interleaved=Interleaved(id="one"))
    a, b = Run(Path("a"), header, (base, measurement("ring")), True), Run(Path("b"), header, (new,), True)
    assert "2.000x" in "\n".join(verdicts(compare(a, b)))
    assert shown("\n".join(verdicts(compare(a, b)))) == {"mpi": "slower"}
    assert "no row has a time" in "\n".join(verdicts(compare(a, replace(b, results=()))))
