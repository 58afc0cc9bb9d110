"""`collbench sweep` as a user meets it: real ranks, real bytes, real signals."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from collbench.algorithms import choose, implementations
from collbench.results import Failed, Measurement, Skipped
from collbench.runfile.store import TornLine, read
from tests.commands.conftest import RIGHT, Whole
from tests.commands.held_ranks import go, held
from tests.conftest import Command, mpiexec

Start = Callable[..., subprocess.Popen[str]]
QUICK = ("sweep", "--on", "cpu", "-n", "3", "--starts", "1", "--no-plot", "--out", "out")
LONG = (*QUICK, "-b", "8", "-e", "512", "-i", "8", "--impl", "mpi,two-shot")


def alive(pids: list[int]) -> list[int]:
    """Which of these processes still run."""
    return [pid for pid in pids if Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in _status(pid)]


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "\nState:\tZ"


def ranks_of(process: subprocess.Popen[str]) -> list[int]:
    """The rank processes of a running command: those it told its own process id."""
    wanted = f"COLLBENCH_SUPERVISOR={process.pid}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        try:
            mine = wanted in (folder / "environ").read_bytes().split(b"\0")
            if mine and b"collbench.measure.worker" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except (OSError, ValueError):
            continue
    return [pid for pid in found if b"mpiexec" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]]


def shared_files(pids: list[int]) -> list[Path]:
    """Named shared memory that these processes map."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    return [Path(line.split()[-1]) for line in lines if "/dev/shm/" in line and "(deleted)" not in line]


def wait_for(what: Callable[[], object], seconds: float = 60.0) -> None:
    """Until it is so; fails if it never is."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def measuring(process: subprocess.Popen[str], folder: Path, *runs: str, rows: int = 2) -> list[int]:
    """Wait until some rows of every run in `out` are on disk; the ranks that measure them."""
    paths = [folder / "out" / run / "run.jsonl" for run in runs or ("",)]
    kind = '"kind":"measurement"'
    wait_for(lambda: all(path.exists() and path.read_text().count(kind) >= rows for path in paths))
    return [pid for pid in ranks_of(process) if "hydra" not in Path(f"/proc/{pid}/cmdline").read_text()]


def test_a_sweep_measures_every_implementation(whole: Whole) -> None:
    for name in choose("all", "cpu"):
        row = rf"(8 B|1 MiB) +{name}(: MPICH [\d.]+)? .*({RIGHT}|skipped: inboxes hold )"
        assert len(re.findall(row, whole.done.stdout)) == 2, name
    run = read(whole.folder)
    assert run.complete
    assert [one.implementation for one in run.results if isinstance(one, Skipped)] == ["one-shot-ll"]
    assert all(isinstance(one, Skipped) or (isinstance(one, Measurement) and one.right) for one in run.results)
    picked = [one.note.picked for one in run.results if isinstance(one, Measurement) and one.implementation == "auto"]
    assert picked == ["one-shot-ll", "two-shot"]
    assert "picked two-shot" in whole.done.stdout
    assert str(whole.folder.relative_to(whole.start)) in whole.done.stdout
    assert not {"\x1b", "\r"} & set(whole.done.stdout + whole.done.stderr)


@pytest.mark.usefixtures("made_up_ranks")
def test_a_sweep_is_drawn_and_says_who_is_fastest(here: Command, tmp_path: Path) -> None:
    done = here("sweep", "--on", "cpu", "--impl", "mpi,ring-flags", "-e", "64", "-f", "8", "--starts", "1")
    assert done.returncode == 0, done.stderr
    _, below = done.stdout.split("\n\n")
    assert below.startswith("fastest: ")
    assert len(below.splitlines() + done.stderr.splitlines()) <= 8 + 2, "two lines are above the table"
    (folder,) = (tmp_path / "results" / "runs").iterdir()
    assert {path.name for path in folder.iterdir()} == {"run.jsonl", "bandwidth.png", "latency.png"}


def test_the_header_has_what_a_reader_needs_and_no_secrets(whole: Whole) -> None:
    text = (whole.folder / "run.jsonl").read_text()
    header = json.loads(text.splitlines()[0])
    assert header["command"][:2] == ["collbench", "sweep"]
    assert header["environment"]["versions"].keys() >= {"collbench", "python", "mpi", "mpi4py", "compiler"}
    assert header["environment"]["variables"]["NCCL_ALGO"] == "Ring"
    assert "hush" not in text
    assert header["topology"]["name"]


def test_the_same_folder_twice_is_refused(whole: Whole, here: Command) -> None:
    earlier = (whole.folder / "run.jsonl").read_bytes()
    again = here(*QUICK, "-e", "8", "--out", str(whole.folder))
    assert again.returncode == 2
    assert "there is a run already; choose another --out" in again.stderr
    assert (whole.folder / "run.jsonl").read_bytes() == earlier


def test_every_collective_is_right_with_the_last_of_three_ranks_as_root(here: Command, tmp_path: Path) -> None:
    """Every record keeps what it claims, at a size that divides neither by the ranks nor by 16 bytes.

    Where three ranks have no core each, the row says so, and how they spin.
    """
    known = implementations()
    words = ("--op", "all", "--ranks", "3", "-r", "2", "-b", "4012", "-e", "4012", "-n", "1", "--spin", "yield")
    done = here(*QUICK, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    results = read(tmp_path / "out").results
    assert all(isinstance(row, Skipped) or (isinstance(row, Measurement) and row.right) for row in results)
    right = {(row.case.collective.name, row.implementation) for row in results if isinstance(row, Measurement)}
    assert right == {(collective, name) for name in choose("all", "cpu") for collective in known[name].collectives}
    assert ("oversubscribed, --spin yield" in done.stdout) == (len(os.sched_getaffinity(0)) < 3)


def test_a_missing_gpu_or_compiler_is_one_line_with_the_fix(here: Command, collbench: Command, tmp_path: Path) -> None:
    gpu = collbench("sweep", "--on", "gpu", CUDA_VISIBLE_DEVICES="")
    compiler = here("sweep", "--on", "cpu", "-e", "8", CXX="no-such-compiler")
    assert re.search(r"collbench: error: .*(no GPU|CuPy).*", gpu.stderr)
    assert "C++ compiler 'no-such-compiler' named by CXX is not on the path: unset CXX" in compiler.stderr
    for done in (gpu, compiler):
        assert (done.returncode, done.stderr.count("error: ")) == (2, 1), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_default_sweep_ends_where_memory_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from collbench.errors import PlatformError
    from collbench.platforms import cpu
    from collbench.platforms.cpu import window
    from collbench.requests.sweeps import SweepRequest, cut_short, measured_sweep

    monkeypatch.setattr(window, "room", lambda: window.Room(200 * 2**20, "this machine", "end what takes it"))
    request = SweepRequest(on="cpu")
    _, sweep = measured_sweep(request)
    assert 2**20 <= sweep.sizes[-1] < cpu.PLATFORM.largest
    assert "larger messages do not fit in free memory" in cut_short(request, sweep, "cpu")[0]
    with pytest.raises(PlatformError, match=r"need .* of shared memory and this machine has"):
        measured_sweep(SweepRequest(on="cpu", maxbytes="128M"))


def test_a_broken_kernel_is_wrong_and_located(here: Command, tmp_path: Path, broken_ring: Path) -> None:
    words = ("--impl", "mpi,ring-flags", "-b", "4020", "-e", "4020")
    done = here(*QUICK, *words, COLLBENCH_KERNELS=str(broken_ring))
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(
        r"ring-flags +WRONG: rank \d+, element \d+ \(chunk \d+\): got \S+, expected \S+; \d+ wrong", done.stdout
    )
    rows = {row.implementation: row for row in read(tmp_path / "out").results if isinstance(row, Measurement)}
    assert rows["mpi"].right
    assert rows["ring-flags"].mismatch
    assert rows["ring-flags"].seconds == ()


STUCK = """#include "flags.cuh"

extern "C" __global__ void stuck(PARAMETER(World) world) {
  const Call call(world);
  if (call.rank == 1) await(call.met(1, 0), 1, world, &call.mine->error.word[0]);  // of rank 0, which has left
  call.leave();
}
"""


def test_a_kernel_that_hangs_is_left_out_after_two_sizes_and_who_waits_is_said(
    collbench: Command, tmp_path: Path
) -> None:
    (tmp_path / "stuck.cu").write_text(STUCK)
    (tmp_path / "stuck.toml").write_text('collectives = ["allreduce"]\narguments = []\n')
    done = collbench(
        *QUICK, "-b", "4", "-e", "64", "-f", "4", "--impl", "stuck", "-T", "4", COLLBENCH_KERNELS=str(tmp_path)
    )
    assert done.returncode == 1, done.stdout + done.stderr
    *failed, skipped = read(tmp_path / "out").results
    assert [row.reason for row in failed] == 2 * ["no progress for 4 s (--timeout); rank 1 waits for rank 0"]
    assert isinstance(skipped, Skipped)
    assert "rank 1 waits for rank 0" in skipped.reason


def test_a_killed_rank_costs_one_row(start: Start, tmp_path: Path) -> None:
    """Fresh ranks take over, everything else is measured, the file is whole, the exit status 1.

    While ranks measure, their shared memory has no names, so that it goes with them, however they end.
    """
    process = start(*LONG[:-1], "mpi,two-shot", "-e", "16", **held(tmp_path, "out", rows=2))
    ranks = measuring(process, tmp_path)
    assert shared_files(ranks) == []
    os.kill(ranks[-1], signal.SIGKILL)
    go(tmp_path)
    output, _ = process.communicate(timeout=250)
    assert process.returncode == 1
    assert "FAILED: rank 1 was ended by signal 9" in output
    run = read(tmp_path / "out")
    assert run.complete
    assert [type(result) for result in run.results].count(Failed) == 1
    assert len(run.results) == 2 * 2


@pytest.mark.full
def test_a_rank_that_hangs_costs_one_row(start: Start, tmp_path: Path) -> None:
    process = start(*LONG[:-1], "mpi", "-e", "24", "-T", "5", **held(tmp_path, "out", rows=1))
    os.kill(measuring(process, tmp_path, rows=1)[-1], signal.SIGSTOP)
    go(tmp_path)
    output, _ = process.communicate(timeout=250)
    assert process.returncode == 1
    assert "FAILED: no progress for 5 s (--timeout)" in output
    assert isinstance(read(tmp_path / "out").results[1], Failed)


def test_a_killed_supervisor_leaves_a_readable_file_and_no_ranks(start: Start, tmp_path: Path) -> None:
    process = start(*LONG, **held(tmp_path, "out", rows=1))
    pids = measuring(process, tmp_path, rows=1)
    assert pids
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: not alive(pids))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TornLine)  # Linux ends even a single write where a page ends
        run = read(tmp_path / "out")
    assert run.results
    assert not run.complete


OTHERS = [pytest.param(number, marks=pytest.mark.full) for number in (signal.SIGTERM, signal.SIGHUP)]


@pytest.mark.parametrize("number", [signal.SIGINT, *OTHERS])
def test_an_interrupt_ends_at_once_with_what_was_measured(start: Start, tmp_path: Path, number: int) -> None:
    process = start(*LONG, **held(tmp_path, "out", rows=1))
    pids = measuring(process, tmp_path, rows=1)
    process.send_signal(number)
    _, messages = process.communicate(timeout=250)
    assert process.returncode == 128 + number
    assert "interrupted: the finished rows are in out/run.jsonl" in messages
    assert "Traceback" not in messages
    assert not alive(pids)
    assert read(tmp_path / "out").complete


def test_a_reader_that_has_seen_enough_leaves_a_whole_run_file(start: Start, tmp_path: Path) -> None:
    process = start(*LONG, **held(tmp_path, "out", rows=1))
    pids = measuring(process, tmp_path, rows=1)
    assert process.stdout
    process.stdout.close()
    go(tmp_path)
    assert process.wait(timeout=250) == 141
    assert process.stderr
    assert "Traceback" not in process.stderr.read()
    wait_for(lambda: not alive(pids))
    assert all(isinstance(one, Measurement) and one.right for one in read(tmp_path / "out").results)


def test_under_an_outside_launcher_its_ranks_are_used(tmp_path: Path, environment: dict[str, str]) -> None:
    command = [mpiexec(), "-n", "2", sys.executable, "-m", "collbench", *QUICK, "-e", "8", "--impl", "mpi,ring-flags"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("8 B  ring-flags") == 1
    run = read(tmp_path / "out")
    assert run.complete
    assert {result.case.ranks for result in run.results} == {2}


def test_a_launcher_whose_mpi_is_not_ours_is_an_error(collbench: Command) -> None:
    """Each process would measure alone, and peers print that as a result; under Open MPI's ours would abort."""
    done = collbench(*QUICK, MV2_COMM_WORLD_SIZE="4", MV2_COMM_WORLD_RANK="0")
    assert done.returncode == 2
    assert "world size 1 although 4 ranks were asked for" in done.stderr
    done = collbench(*QUICK, OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="0")
    assert done.returncode == 2
    assert "Open MPI's launcher started this, and mpi4py loads MPICH, which that cannot start; fix: " in done.stderr
    assert done.stderr.count("error: ") == 1


def test_an_allreduce_with_its_pictures_loads_few_modules(environment: dict[str, str], tmp_path: Path) -> None:
    words = ["collbench", "sweep", "--on", "cpu", "-e", "8", "-n", "3", "--starts", "1", "--out", "out"]
    count = "len([name for name in sys.modules if name.partition('.')[0] == 'collbench'])"
    code = f"import sys; from collbench.cli.group import group; sys.argv = {words}\n"
    code += f"group.main(sys.argv[1:], standalone_mode=False); print({count})"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert 60 < int(done.stdout.split()[-1]) <= 120  # of which 20 are records of commands
    assert (tmp_path / "out" / "latency.png").exists()
