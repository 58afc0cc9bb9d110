"""The main command as a user meets it: real ranks, real bytes, real signals."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.implementations import choose, implementations
from collbench.measurement import Failed, Measurement, Skipped
from collbench.runs.file import TornLine, read
from tests.cli.held_ranks import go, held
from tests.conftest import ROOT, Command, carried_out, of_a_user

Start = Callable[..., subprocess.Popen[str]]
QUICK = ("sweep", "--on", "cpu", "-n", "3", "--no-plot", "--out", "out")
SIZES = ("-e", "512", "-f", "8")
LONG = (*QUICK, "-b", "8", "-e", "512", "-i", "8", "--impl", "mpi,two-shot")
MEASURING = (*QUICK, *SIZES, "--impl", "mpi,two-shot,ring-flags")


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


def measuring(process: subprocess.Popen[str], folder: Path, rows: int = 2) -> list[int]:
    """Wait until some rows are on disk; the ranks that measure them."""
    path = folder / "out" / "run.jsonl"
    wait_for(lambda: path.exists() and path.read_text().count('"kind": "measurement"') >= rows)
    return [pid for pid in ranks_of(process) if "hydra" not in Path(f"/proc/{pid}/cmdline").read_text()]


class Whole(NamedTuple):
    """A sweep as most users start it, in an empty folder."""

    done: subprocess.CompletedProcess[str]
    start: Path
    folder: Path  # the one that it made


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Carried out once for all who look at what came of it."""
    start = tmp_path_factory.mktemp("whole")
    environment = of_a_user() | {"SECRET_TOKEN": "hush", "NCCL_ALGO": "Ring"}
    done = carried_out(start, environment, "sweep", "--on", "cpu", "-e", "32K", "-f", "64", "-n", "7")
    assert done.returncode == 0, done.stderr
    (folder,) = (start / "results" / "runs").iterdir()
    return Whole(done, start, folder)


def test_a_sweep_measures_every_implementation_and_draws_it(whole: Whole) -> None:
    """Checked rows of all, a whole run file, two pictures, and where they are."""
    for name in choose("all", "cpu"):
        assert re.search(rf"32 KiB +{name}(: MPICH [\d.]+)? .* ok", whole.done.stdout)
    run = read(whole.folder)
    assert run.complete
    assert all(isinstance(result, Measurement) and not result.mismatch for result in run.results)
    assert {path.name for path in whole.folder.iterdir()} == {"run.jsonl", "bandwidth.png", "latency.png"}
    assert str(whole.folder.relative_to(whole.start)) in whole.done.stdout
    assert "fastest, allreduce, float, sum, 2 ranks:" in whole.done.stdout


def measured(folder: Path) -> Counter[tuple[str, str]]:
    """How many rows of each (collective, implementation) of a run are right; the others must be skipped."""
    results = read(folder / "out").results
    assert all(isinstance(result, Skipped) or (isinstance(result, Measurement) and result.right) for result in results)
    return Counter((one.case.collective.name, one.implementation) for one in results if isinstance(one, Measurement))


def of_records(names: Sequence[str], rows: int, ranks: int = 3) -> Counter[tuple[str, str]]:
    """So many rows of each pair that the implementations' records claim; one of what has no size."""
    known = implementations()
    claimed = ((COLLECTIVES[collective], name) for name in names for collective in known[name].collectives)
    return Counter(
        {
            (collective.name, name): rows if collective.sized else 1
            for collective, name in claimed
            if ranks >= collective.least_ranks
        }
    )


@pytest.mark.timeout(300)  # three ranks on two busy cores
@pytest.mark.parametrize("ranks", ["1", "3"])
def test_every_collective_works_at_odd_sizes(here: Command, tmp_path: Path, ranks: str) -> None:
    """Sizes that divide neither by the ranks nor by 16 bytes; every record keeps what it claims."""
    done = here(*QUICK, "--op", "all", "--ranks", ranks, "-b", "1", "-e", "199809", "-f", "447")
    assert done.returncode == 0, done.stderr
    assert measured(tmp_path) == of_records(choose("all", "cpu"), rows=3, ranks=int(ranks))


@pytest.mark.timeout(300)  # every type or collective, compiled first where the cache is empty
@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        (("-d", "all"), len(DATATYPES)),
        (("-o", "all"), len(REDUCTIONS)),
        (("-r", "2", "--op", "all"), 1),
    ],
)
def test_types_reductions_and_roots_are_right(
    here: Command, tmp_path: Path, changes: tuple[str, ...], kinds: int
) -> None:
    """Every one of them, on three ranks, against exactly known results."""
    few = ("mpi", "ring-host", "ring-flags", "two-shot")  # tests/platforms/gpu/test_properties.py has all
    sizes = ("-b", "24", "-e", "10008", "-f", "417")
    done = here(*QUICK, "--impl", ",".join(few), "--ranks", "3", *sizes, "-n", "1", *changes)
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = of_records(few, rows=2 * kinds)
    assert measured(tmp_path) == {key: wanted[key] for key in wanted if "--op" in changes or key[0] == "allreduce"}


def test_in_place_is_right_or_refused(here: Command, tmp_path: Path) -> None:
    """Where a collective has no such form, and where MPI demands the input that it would overwrite, it is skipped."""
    few = ("mpi", "ring-host", "ring-flags", "two-shot")
    words = ("--impl", ",".join(few), "--ranks", "3", "-b", "10008", "-e", "10008", "-n", "1", "--op", "all")
    done = here(*QUICK, *words, "--in-place")
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = of_records(few, rows=1)
    del wanted["reducescatter", "mpi"]
    assert measured(tmp_path) == {key: wanted[key] for key in wanted if COLLECTIVES[key[0]].in_place}


def test_auto_alone_says_what_it_picked(here: Command, tmp_path: Path) -> None:
    """One rung for a small message, another for a large one, each with its FIFO; every collective of a rung."""
    done = here(*QUICK, "--impl", "auto", "--op", "all", "-b", "8", "-e", "1M", "-f", "131072")
    assert done.returncode == 0, done.stdout + done.stderr
    notes = {
        (result.case.collective.name, result.case.nbytes): result.note.picked
        for result in read(tmp_path / "out").results
        if isinstance(result, Measurement)
    }
    assert notes["allreduce", 8] == "one-shot-ll"
    assert notes["allreduce", 2**20] == "two-shot"
    assert {collective for collective, _ in notes} == {"allreduce", "broadcast", "allgather", "reducescatter"}
    assert "picked two-shot" in done.stdout


def test_the_header_has_what_a_reader_needs_and_no_secrets(whole: Whole) -> None:
    """Command, versions, hardware; of the environment only what changes measurements."""
    text = (whole.folder / "run.jsonl").read_text()
    header = json.loads(text.splitlines()[0])
    assert header["command"][:2] == ["collbench", "sweep"]
    assert header["environment"]["versions"].keys() >= {"collbench", "python", "mpi", "mpi4py", "compiler"}
    assert header["environment"]["variables"]["NCCL_ALGO"] == "Ring"
    assert "hush" not in text
    assert header["topology"]["name"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--op", "alreduce"], "unknown collective 'alreduce'; choose from: allreduce"),
        (["-d", "float8"], "unknown dtype 'float8'; choose from: float"),
        (["-o", "mean"], "unknown reduction 'mean'; choose from: sum"),
        (["--impl", "fastest"], "unknown implementation 'fastest'; choose from: all, library, ladder, narrow, mpi"),
        (["--impl", "nccl"], "nccl does not run on cpu; choose from"),
        (["-b", "0"], "-b 0 is no message"),
        (["-b", "x"], "'x' is not a size"),
        (["-f", "1"], "-f 1 never gets to -e; give a factor above 1"),
        (["-f", "nan"], "-f nan never gets to -e"),
        (["-i", "0"], "-i 0 never gets to -e"),
        (["-b", "1M", "-e", "8"], "-b 1M is above -e 8"),
        (["-e", "900T"], "of shared memory and "),
        (["--ranks", "0"], "--ranks 0 is too few"),
        (["-n", "0"], "--iters 0 is too few"),
        (["-r", "2"], "--root 2 is no rank; choose from 0 to 1"),
        (["--budget", "0"], "--budget 0.0 is no time"),
        (["--spin", "fast"], "unknown --spin 'fast'; choose from: auto, yield, busy"),
        (["--on", "moon"], "unknown --on 'moon'; choose from: auto, gpu, cpu"),
        (["--out", "/proc/nothing"], "cannot write to /proc/nothing"),
        (["--frobnicate"], "unknown option"),
        (["--ranks", "two"], "not a valid integer"),
    ],
)
def test_wrong_words_are_one_line_and_exit_2(
    here: Command, tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    """What is wrong, the choices, the fix; nothing is measured and nothing left behind."""
    done = here("sweep", "--on", "cpu", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_missing_gpu_is_one_line_and_exit_2(collbench: Command, tmp_path: Path) -> None:
    """Asked for by name, not found, and what to do."""
    done = collbench("sweep", "--on", "gpu", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert re.search(r"collbench: error: .*(no GPU|CuPy).*", done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_missing_compiler_is_one_line_with_the_fix(here: Command) -> None:
    """Found when the kernels are needed, and said once."""
    done = here("sweep", "--on", "cpu", "-e", "8", CXX="no-such-compiler")
    assert done.returncode == 2
    assert "C++ compiler 'no-such-compiler' named by CXX is not on the path: unset CXX" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_same_folder_twice_is_refused(whole: Whole, here: Command) -> None:
    """An earlier run is never overwritten."""
    earlier = (whole.folder / "run.jsonl").read_bytes()
    again = here(*QUICK, "-e", "8", "--out", str(whole.folder))
    assert again.returncode == 2
    assert "there is a run already; choose another --out" in again.stderr
    assert (whole.folder / "run.jsonl").read_bytes() == earlier


BUGS = {
    "flag before data": (
        "ring.cu",
        "    const u64 packs =",
        "    if (VERBS & SEND) { publish(&next->channel[block].arrived.word[0], sent + 1); "
        "for (volatile int wait = 0; world.first && wait < 30000000; wait = wait + 1) {} }\n    const u64 packs =",
    ),
    "chunk off by one": (
        "ring.cu",
        "ring.hop<TAKE | KEEP>(from(rank + 1), to(rank + 1)",
        "ring.hop<TAKE | KEEP>(from(rank + 1), to(rank + 2)",
    ),
    "tail dropped": ("ring.cu", "count - tail, world.ranks);", "0, world.ranks);"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_broken_kernel_is_wrong_and_located(here: Command, tmp_path: Path, bug: str) -> None:
    """WRONG with rank, element, chunk, got and expected; no time is printed for it; exit status 1."""
    kernels = tmp_path / "kernels"
    shutil.copytree(ROOT / "kernels", kernels)
    file, right, broken = BUGS[bug]
    text = (kernels / file).read_text()
    assert right in text
    (kernels / file).write_text(text.replace(right, broken, 1 if bug != "tail dropped" else -1))
    words = ("--impl", "mpi,ring-flags", "-b", "4020", "-e", "4020")
    done = here(*QUICK, *words, COLLBENCH_KERNELS=str(kernels))
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(
        r"ring-flags +WRONG: rank \d+, element \d+ \(chunk \d+\): got \S+, expected \S+; \d+ wrong", done.stdout
    )
    right, wrong = sorted(read(tmp_path / "out").results, key=lambda result: result.implementation)
    assert isinstance(right, Measurement)
    assert right.right
    assert isinstance(wrong, Measurement)
    assert wrong.mismatch
    assert wrong.seconds == ()


def test_a_killed_rank_costs_one_row(start: Start, tmp_path: Path) -> None:
    """Fresh ranks take over, everything else is measured, the file is whole, the exit status 1."""
    process = start(*MEASURING, **held(tmp_path, "out", rows=2))
    victim = measuring(process, tmp_path)[-1]
    os.kill(victim, signal.SIGKILL)
    go(tmp_path)
    wait_for(lambda: '"kind": "failed"' in (tmp_path / "out" / "run.jsonl").read_text(), 20)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert re.search(r"FAILED: a rank was ended by signal 9", output)
    run = read(tmp_path / "out")
    assert run.complete
    assert sum(isinstance(result, Failed) for result in run.results) == 1
    assert len(run.results) == 3 * 3


def test_a_rank_that_hangs_costs_one_row(start: Start, tmp_path: Path) -> None:
    """A stopped process makes no progress; after the timeout it is replaced."""
    process = start(*QUICK, *SIZES, "--impl", "mpi", "-T", "2", **held(tmp_path, "out", rows=1))
    os.kill(measuring(process, tmp_path, rows=1)[-1], signal.SIGSTOP)
    go(tmp_path)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "FAILED: no progress for 2 s (--timeout)" in output
    assert sum(isinstance(result, Failed) for result in read(tmp_path / "out").results) == 1


NO_HANDLES = """
import errno, os
def pidfd_open(pid, flags=0):
    open(os.environ["ASKED"], "a").close()
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
os.pidfd_open = pidfd_open
"""


@pytest.mark.parametrize("handles", [True, False])
def test_a_killed_supervisor_leaves_a_readable_file_and_no_ranks(start: Start, tmp_path: Path, handles: bool) -> None:
    """After kill -9 on the command every rank notices, on old kernels too, and what was measured can be read."""
    holding = held(tmp_path, "out", rows=1, more="" if handles else NO_HANDLES)
    process = start(*LONG, **holding, ASKED=str(tmp_path / "asked"))
    pids = measuring(process, tmp_path, rows=1)
    assert pids
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: not alive(pids))
    assert (tmp_path / "asked").exists() != handles
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TornLine)  # Linux ends even a single write where a page ends
        run = read(tmp_path / "out")
    assert run.results
    assert not run.complete


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_at_once_with_what_was_measured(start: Start, tmp_path: Path, number: int) -> None:
    """In order, with sizes left: whole file, no ranks, no traceback."""
    process = start(*LONG, **held(tmp_path, "out", rows=1))
    pids = measuring(process, tmp_path, rows=1)
    process.send_signal(number)
    _, messages = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert "interrupted: what was measured is in out/run.jsonl" in messages
    assert "Traceback" not in messages
    assert not alive(pids)
    assert read(tmp_path / "out").complete


def test_a_closed_pipe_ends_quietly(start: Start, tmp_path: Path) -> None:
    """`collbench sweep | head` leaves no traceback and no ranks."""
    process = start(*LONG, **held(tmp_path, "out", rows=1))
    pids = measuring(process, tmp_path, rows=1)
    assert process.stdout
    process.stdout.close()
    go(tmp_path)
    process.wait(timeout=30)
    assert process.stderr
    assert "Traceback" not in process.stderr.read()
    wait_for(lambda: not alive(pids))


def test_nothing_is_left_in_shared_memory(start: Start, tmp_path: Path) -> None:
    """It has no names while ranks measure, so that it goes with them, however they end."""
    process = start(*MEASURING, **held(tmp_path, "out", rows=1))
    assert shared_files(measuring(process, tmp_path, rows=1)) == []
    go(tmp_path)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_pipe_gets_plain_rows_and_a_terminal_is_not_needed(whole: Whole) -> None:
    """No colour codes and no carriage returns."""
    assert "\x1b" not in whole.done.stdout + whole.done.stderr
    assert "\r" not in whole.done.stdout + whole.done.stderr


def test_under_an_outside_launcher_its_ranks_are_used(tmp_path: Path, environment: dict[str, str]) -> None:
    """With mpiexec -n 2 collbench sweep: two ranks, one table, one run file."""
    from collbench.measure.start import mpiexec

    command = [mpiexec(), "-n", "2", *_python(), *QUICK, "-e", "64", "-f", "8"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("64 B  ring-flags") == 1
    run = read(tmp_path / "out")
    assert run.complete
    assert {result.case.ranks for result in run.results} == {2}


def test_a_launcher_of_one_process_is_none(tmp_path: Path, environment: dict[str, str]) -> None:
    """`mpiexec -n 1 collbench sweep` does what `collbench sweep` does."""
    from collbench.measure.start import mpiexec

    command = [mpiexec(), "-n", "1", *_python(), *QUICK, "--ranks", "2", "--impl", "ladder", "-e", "8"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {result.case.ranks for result in read(tmp_path / "out").results} == {2}


SHELL_OF_ONE_TASK = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "elsewhere[1-2]",
    "SLURM_NODELIST": "elsewhere[1-2]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NNODES": "2",
    "SLURM_TASKS_PER_NODE": "1(x2)",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_PROCID": "0",
    "SLURM_NODEID": "0",
    "PMI_RANK": "0",
    "PMI_SIZE": "1",
    "PMI_FD": "99",
}
"""What `srun --pty bash` gives a shell, on the first of two nodes."""


def test_in_a_shell_of_one_task_ranks_are_started_here(here: Command, tmp_path: Path) -> None:
    """As many as were asked for; our mpiexec would ask Slurm for the nodes, and srun to start ranks there."""
    done = here(*QUICK, "--ranks", "2", "--impl", "ladder", "-e", "8", **SHELL_OF_ONE_TASK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {result.case.ranks for result in read(tmp_path / "out").results} == {2}


def test_a_launcher_whose_mpi_is_not_ours_is_an_error(collbench: Command) -> None:
    """Each process would measure alone, and peers print that as a result; under Open MPI's ours would abort."""
    done = collbench(*QUICK, MV2_COMM_WORLD_SIZE="4", MV2_COMM_WORLD_RANK="0")
    assert done.returncode == 2
    assert "world size 1 although 4 ranks were asked for" in done.stderr
    done = collbench(*QUICK, OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="0")
    assert done.returncode == 2
    assert "Open MPI's launcher started this, and mpi4py loads MPICH, which that cannot start; fix: " in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_waiting_ranks_that_never_yield_are_named(here: Command) -> None:
    """More ranks than cores: the row says so, and how they spin."""
    cores = len(os.sched_getaffinity(0))
    done = here(*QUICK, "--ranks", str(cores + 1), "-e", "8", "--spin", "yield")
    assert done.returncode == 0
    assert "ok, oversubscribed, --spin yield" in done.stdout


def _python() -> list[str]:
    import sys

    return [sys.executable, "-m", "collbench"]


def test_the_default_sweep_ends_where_memory_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container with little shared memory still gets a sweep, and a sentence; what was asked for is refused."""
    from collbench.api import wanted as _options
    from collbench.cli.sweep import command
    from collbench.errors import PlatformError
    from collbench.platforms import cpu

    monkeypatch.setattr(cpu.memory, "room", lambda: cpu.memory.Room(200 * 2**20, "this machine", "end what takes it"))
    options = command.make_context("sweep", ["--on", "cpu"]).params
    _, sweep = _options.make_sweep(options, None)
    assert 2**20 <= sweep.sizes[-1] < cpu.PLATFORM.largest
    assert "larger messages do not fit in the memory that is free here" in _options.cut_short(sweep, "cpu")
    with pytest.raises(PlatformError, match=r"need .* of shared memory and this machine has"):
        _options.make_sweep(options | {"maxbytes": "128M"}, None)
