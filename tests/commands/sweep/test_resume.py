"""`collbench sweep --resume`: what it measures, what it leaves as it is, and which runs it refuses."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from collbench.measure.protocol import WorkerHello
from collbench.results import Failed, Outcome, Skipped
from collbench.runfile.schema import Header, TopologyPart, to_line, to_result
from collbench.runfile.store import Run, TornLine, Writer, read
from collbench.topology.discovered import Socket
from tests.commands.made_up_ranks import MadeUpRanks, made_up_ranks
from tests.commands.sweep.test_command import wait_for
from tests.conftest import Command, mpiexec, of_a_user

__all__ = ["made_up_ranks"]
made_up = pytest.mark.usefixtures("made_up_ranks")

SWEEP = ("sweep", "--on", "cpu", "--op", "allreduce,broadcast", "--impl", "mpi,two-shot", "-e", "512", "-f", "8")
HELLO = WorkerHello(
    TopologyPart(name="2 ranks on a toy", platform="cpu", ranks=2, sockets=(Socket("toy"),)),
    versions={"mpi": "MPICH Version: 5.0.2", "compiler": "c++ 12"},
    variables={"UCX_TLS": "self,sm"},
)
Edit = Callable[[list[dict[str, Any]]], Sequence[dict[str, Any] | bytes]]


@pytest.fixture
def swept(here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Edit], list[bytes]]:
    """Put what becomes of the lines of a whole sweep into `out`; its lines."""
    monkeypatch.setattr(MadeUpRanks, "hello", HELLO)
    assert here(*SWEEP, "--no-plot", "--out", "whole").returncode == 0
    whole = [json.loads(line) for line in (tmp_path / "whole" / "run.jsonl").read_text().splitlines()]

    def write(edit: Edit) -> list[bytes]:
        (tmp_path / "out").mkdir(exist_ok=True)
        edited = edit(json.loads(json.dumps(whole)))
        lines = [line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in edited]
        (tmp_path / "out" / "run.jsonl").write_bytes(b"".join(lines))
        return lines

    return write


def changed(line: dict[str, Any], kind: type[Failed | Skipped]) -> dict[str, Any]:
    row = to_result(line)
    assert row
    return to_line(kind(row.case, row.implementation, row.platform, "it broke; the run ends here"))


def keys(run: Run) -> list[tuple[str, int, str]]:
    return [(row.case.collective.name, row.case.nbytes, row.implementation) for row in run.results]


@made_up
def test_what_is_failed_torn_or_missing_is_measured_and_all_else_stays_byte_for_byte(
    swept: Callable[[Edit], list[bytes]], here: Command, tmp_path: Path
) -> None:
    torn = b'{"kind": "measurement", "implem'

    def skip_after_failure(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [*lines[:2], changed(lines[2], Failed), lines[3], changed(lines[4], Skipped), *lines[5:]]

    edits: dict[str, tuple[Edit, list[int]]] = {
        "killed": (lambda lines: lines[:6], [1, 2, 3, 4, 5]),
        "torn": (lambda lines: [*lines[:4], torn], [1, 2, 3]),
        "torn before another row": (lambda lines: [*lines[:4], torn + b"\n", *lines[5:]], [1, 2, 3, *range(5, 13)]),
        "without the last newline": (lambda lines: [*lines[:3], json.dumps(lines[3]).encode()], [1, 2, 3]),
        "interrupted": (lambda lines: [*lines[:6], lines[-1] | {"status": 130}], [1, 2, 3, 4, 5]),
        "failed at its end": (lambda lines: [*lines[:3], changed(lines[3], Failed), lines[-1] | {"status": 1}], [1, 2]),
        "given up": (skip_after_failure, [1, 3, *range(5, 13)]),
        "skipped elsewhere": (lambda lines: [lines[0], changed(lines[1], Skipped), *lines[2:6]], [1, 2, 3, 4, 5]),
        "in another order": (lambda lines: [lines[0], lines[7], lines[2]], [1, 2]),
    }
    expected = None
    for name, (edit, kept) in edits.items():
        before = swept(edit)
        if name == "without the last newline":
            before[-1] += b"\n"
        started = read(tmp_path / "whole").header.started
        done = here("sweep", "--resume", "out", "--no-plot")
        assert done.returncode == 0, (name, done.stderr)
        run = read(tmp_path / "out")
        expected = expected or keys(read(tmp_path / "whole"))
        assert sorted(keys(run)) == sorted(expected), name
        assert run.whole, name
        assert all(row.outcome is not Outcome.FAILED for row in run.results), name
        assert len(run.header.resumed) == 1, name
        assert run.header.started == started, name
        after = (tmp_path / "out" / "run.jsonl").read_bytes().splitlines(keepends=True)
        assert [place for place, line in enumerate(before) if line in after[1:-1]] == kept, name
        table = re.findall(r"^ +(\d+) B +([a-z-]+)", done.stdout, re.MULTILINE)
        assert table == [(str(nbytes), implementation) for _, nbytes, implementation in keys(run)], name
    assert "resumed" in here("runs", str(tmp_path)).stdout


@made_up
def test_of_a_whole_run_nothing_is_missing(swept: Callable[[Edit], list[bytes]], here: Command, tmp_path: Path) -> None:
    before = swept(lambda lines: lines)
    done = here("sweep", "--resume", "out/run.jsonl")
    assert (done.returncode, done.stdout) == (0, "out/run.jsonl: nothing is missing\n")
    assert (tmp_path / "out" / "run.jsonl").read_bytes() == b"".join(before)


@made_up
def test_settings_are_those_of_the_run_and_none_may_be_given_again(
    swept: Callable[[Edit], list[bytes]], here: Command, tmp_path: Path
) -> None:
    before = swept(lambda lines: lines[:4])
    for words in ("-b 16", "--in-place", "-G 0", "--ab X=1", "--out elsewhere"):
        done = here("sweep", "--resume", "out", *words.split())
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), words
        assert "leave out --" in done.stderr, words
        assert (tmp_path / "out" / "run.jsonl").read_bytes() == b"".join(before), words
    assert here("sweep", "--resume", "out", "--no-plot", "-q", "-I", "--json", "-").returncode == 0


@made_up
def test_a_run_of_another_machine_is_refused_by_what_differs(
    swept: Callable[[Edit], list[bytes]], here: Command, tmp_path: Path
) -> None:
    differing: dict[str, tuple[list[str], object, str]] = {
        "host": (["environment", "host"], "elsewhere", "host elsewhere, here is host "),
        "library": (
            ["environment", "versions", "mpi"],
            "Open MPI v4.1.4",
            "measured with Open MPI 4.1.4, here is MPICH 5.0.2",
        ),
        "driver": (["environment", "versions", "driver"], "580", "driver 580, here is no driver"),
        "variable": (["environment", "variables", "UCX_TLS"], "tcp", "UCX_TLS=tcp, here is UCX_TLS=self,sm"),
        "no variable": (["environment", "variables"], {}, "no UCX_TLS, here is UCX_TLS=self,sm"),
        "topology": (["topology", "name"], "3 ranks on a toy", "3 ranks on a toy, here is 2 ranks on a toy"),
        "socket": (["topology", "sockets"], [{"name": "other"}], "other, here is toy"),
        "launcher": (["processes"], 2, "by 2 processes of a launcher; to resume it, start 2 with the launcher"),
    }
    for name, (path, value, words) in differing.items():

        def edit(lines: list[dict[str, Any]], path: list[str] = path, value: object = value) -> list[dict[str, Any]]:
            part = lines[0]
            for step in path[:-1]:
                part = part[step]
            part[path[-1]] = value
            return lines[:4]

        before = swept(edit)
        done = here("sweep", "--resume", "out")
        assert done.returncode == 2, name
        assert words in done.stderr, name
        assert (tmp_path / "out" / "run.jsonl").read_bytes() == b"".join(before), name


@made_up
def test_what_is_no_sweep_of_this_kind_is_refused(
    swept: Callable[[Edit], list[bytes]], here: Command, tmp_path: Path
) -> None:
    parts: dict[str, dict[str, Any]] = {
        "imported": {"imported": {"tool": "nccl-tests"}},
        "predicted": {"topology": {"model": True, "platform": "gpu"}},
        "one of two settings": {"interleaved": {"id": "a", "setting": "X=1"}},
        "compares MPI or NCCL libraries": {"sweep": {"implementations": ["mpi", "mpi@openmpi"]}},
        "no whole sweep": {"sweep": {}},
    }
    for words, part in parts.items():
        swept(lambda lines, part=part: [lines[0] | part, *lines[1:3]])  # type: ignore[misc]
        done = here("sweep", "--resume", "out")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), words
        assert words in done.stderr
    swept(lambda lines: [lines[0] | {"sweep": lines[0]["sweep"] | {"sampling": {"check_only": True}}}])
    assert "not of collbench sweep" in here("sweep", "--resume", "out").stderr
    swept(lambda lines: [lines[0] | {"sweep": lines[0]["sweep"] | {"collectives": ["allreduce", "warp"]}}])
    path = tmp_path / "out" / "run.jsonl"
    path.write_text("\n" + path.read_text())
    assert "warp is unknown to this release" in here("sweep", "--resume", "out").stderr
    assert here("sweep", "--resume", "nowhere").returncode == 2
    (tmp_path / "text").write_text("a text\n")
    assert here("sweep", "--resume", "text").returncode == 2


@made_up
def test_a_run_that_is_being_measured_is_refused(
    swept: Callable[[Edit], list[bytes]], here: Command, tmp_path: Path
) -> None:
    header = json.loads(swept(lambda lines: lines)[0])
    with Writer(tmp_path / "busy") as writer:
        writer.header(Header.from_json({name: part for name, part in header.items() if name not in ("kind", "format")}))
        done = here("sweep", "--resume", "busy")
        assert done.returncode == 2
        assert "is being written" in done.stderr
    assert here("sweep", "--resume", "busy", "--no-plot").returncode == 0


LAUNCHERS = {
    "the MPICH of mpi4py": "",
    "MPICH": "mpirun.mpich",
    "Open MPI": "mpirun.openmpi --allow-run-as-root --oversubscribe",
}


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_sweep_under_a_launcher_whose_rank_is_killed_can_be_resumed(name: str, tmp_path: Path) -> None:
    launcher = LAUNCHERS[name].split() or [mpiexec()]
    if not shutil.which(launcher[0]):
        pytest.skip(f"{name} is not installed")
    collbench = [*launcher, "-n", "2", sys.executable, "-m", "collbench", "sweep"]
    sweep = ["--on", "cpu", "-e", "4K", "-f", "2", "--impl", "mpi,two-shot", "--no-plot", "--out", "out"]
    environment = of_a_user() | {"OMPI_MCA_btl": "^tcp"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*collbench, *sweep], cwd=tmp_path, env=environment, **quiet)  # type: ignore[call-overload]
    path = tmp_path / "out" / "run.jsonl"
    wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") > 4)
    os.kill(second_rank_in(tmp_path), signal.SIGKILL)
    assert process.wait(timeout=60) != 0
    wait_for(lambda: not second_rank_in(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TornLine)
        run = read(path)
    assert not run.whole
    if name == "Open MPI":
        (failed,) = [row for row in run.results if isinstance(row, Failed)]
        assert "rank 1 ended" in failed.reason
    before = [line for line in path.read_bytes().splitlines(keepends=True) if b'"measurement"' in line]
    done = subprocess.run([*collbench, "--resume", "out", "--no-plot"], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0
    after = path.read_bytes().splitlines(keepends=True)
    assert [line for line in before if line not in after] == []
    run = read(path)
    assert run.whole
    assert len(run.results) == 2 * 10


def second_rank_in(folder: Path) -> int:
    """The process of rank 1 of a launcher that was started in that folder; 0 if there is none."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if (entry / "cwd").resolve() != folder or b"collbench" not in words:
                continue
        except OSError:
            continue
        if {b"PMI_RANK=1", b"OMPI_COMM_WORLD_RANK=1"} & set(variables):
            return int(entry.name)
    return 0


@made_up
def test_a_run_from_elsewhere_leads_to_no_file_of_the_user(
    here: Command, swept: Callable[[Edit], list[bytes]], tmp_path: Path
) -> None:
    (tmp_path / "precious").write_text("mine")
    swept(lambda lines: lines[:4])
    (tmp_path / "out" / "run.jsonl.new").symlink_to(tmp_path / "precious")
    assert here("sweep", "--resume", "out", "--no-plot").returncode == 0
    assert read(tmp_path / "out").whole
    assert not (tmp_path / "out" / "run.jsonl").is_symlink()

    swept(lambda lines: lines[:4])
    (tmp_path / "out" / "run.jsonl").rename(tmp_path / "elsewhere.jsonl")
    (tmp_path / "out" / "run.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    before = (tmp_path / "elsewhere.jsonl").read_bytes()
    done = here("sweep", "--resume", "out", "--no-plot")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "run.jsonl: it is a link, and is not written through" in done.stderr
    assert (tmp_path / "elsewhere.jsonl").read_bytes() == before
    assert (tmp_path / "precious").read_text() == "mine"
