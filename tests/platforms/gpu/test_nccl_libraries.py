"""Releases of NCCL: how one is found, and `sweep --nccl` with two of them on made-up GPUs."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

import collbench
from collbench.algorithms import implementations
from collbench.errors import Unsupported, UsageError
from collbench.platforms.compiler import compiler
from collbench.platforms.gpu.cuda import NCCL_LIBRARY
from collbench.platforms.gpu.nccl import FILE, find, usual
from collbench.requests import sessions
from collbench.results import Measurement
from collbench.runfile.store import read
from tests.platforms.gpu.opening import Open
from tools.stand_in.cases import a_case
from tools.stand_in.cuda import Machine
from tools.stand_in.whole_commands import on_gpus

OLD, NEW = "2.30.7", "2.32.3"
SWEEP = ("sweep", "--impl", "nccl,two-shot", "-b", "64", "-e", "128", "-f", "2", "-n", "8", "--no-plot")


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Two libraries that say which release they are, each in a folder of its own."""
    made = {}
    for release, number in ((OLD, 23007), (NEW, 23203)):
        made[release] = tmp_path_factory.mktemp("nccl") / FILE
        source = made[release].with_name("says.cpp")
        source.write_text(f'extern "C" int ncclGetVersion(int* number) {{ *number = {number}; return 0; }}')
        subprocess.run([*compiler(), "-shared", "-fPIC", "-o", made[release], source], check=True)
    return made


@pytest.fixture(autouse=True)
def loaded_by_default(monkeypatch: pytest.MonkeyPatch, releases: Mapping[str, Path]) -> None:
    monkeypatch.setenv(NCCL_LIBRARY, str(releases[NEW]))
    usual.cache_clear()


@pytest.mark.parametrize(
    "place", ["", "lib", "nvidia/nccl/lib", "lib/python3.11/site-packages/nvidia/nccl/lib", "build/lib"]
)
def test_a_folder_is_that_of_a_wheel_an_environment_or_a_build(
    place: str, releases: Mapping[str, Path], tmp_path: Path
) -> None:
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    shutil.copy(releases[OLD], tmp_path / place)
    for word in (tmp_path, tmp_path / place / FILE):
        library = find(str(word))
        assert (library.key, library.file, library.own) == (OLD, tmp_path / place / FILE, False)
        assert library.changes == {NCCL_LIBRARY: str(library.file)}


def test_a_release_is_the_one_that_ranks_load(releases: Mapping[str, Path], tmp_path: Path) -> None:
    assert find(NEW).file == releases[NEW]
    assert find(NEW).own
    (tmp_path / FILE).symlink_to(releases[NEW])
    assert find(str(tmp_path)).own
    with pytest.raises(UsageError, match=re.escape(f"give {NEW} (what ranks load), a file")) as error:
        find(OLD)
    assert "\n" not in str(error.value)


def test_what_is_no_nccl_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no library")
    with pytest.raises(
        UsageError, match=r"is no NCCL that can be loaded \(OSError: .*text: .*\); give a libnccl.so.2$"
    ):
        find(str(tmp_path / "text"))


def test_rows_of_two_releases_stay_apart_and_say_which_they_are_of(
    releases: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NCCL_LIBRARY)
    words = ("--nccl", ",".join(str(releases[name]) for name in (OLD, NEW)), "--out", "out")
    done = on_gpus(tmp_path, *SWEEP, *words, devices=2, variables={"NCCL_DEBUG": "INFO"})
    assert done.returncode == 0, done.stderr
    run = read(tmp_path / "out")
    names = [f"nccl@{OLD}", f"nccl@{NEW}", "two-shot"]
    assert [row.implementation for row in run.results] == names * 2
    assert list(run.header.sweep.implementations) == names
    for row in run.results:
        assert isinstance(row, Measurement)
        assert row.right
        of_library = row.implementation.removeprefix("nccl@")
        assert (row.library, len(row.rounds)) == ("" if of_library == "two-shot" else f"NCCL {of_library}", 8)
        assert f"nccl: {of_library} " in done.stdout or of_library == "two-shot"
    environment = run.header.environment
    assert (environment.versions[names[0]], environment.versions[names[1]]) == (OLD, NEW)
    assert NCCL_LIBRARY not in environment.variables
    assert {path.name for path in (tmp_path / "out").glob("*.log")} == {"nccl-debug.log", "nccl-debug-2.log"}


def test_the_release_that_ranks_load_by_themselves_keeps_its_name(releases: Mapping[str, Path], tmp_path: Path) -> None:
    words = ("--impl", "nccl", "--nccl", f"{NEW},{releases[OLD]}", "--out", "out")
    done = on_gpus(tmp_path, *SWEEP, *words, devices=2)
    assert done.returncode == 0, done.stderr
    assert list(read(tmp_path / "out").header.sweep.implementations) == ["nccl", f"nccl@{OLD}"]
    done = on_gpus(tmp_path, *SWEEP, "--nccl", f"{releases[OLD]},{releases[OLD]}", devices=2)
    assert (done.returncode, f"--nccl names {releases[OLD]} twice" in done.stderr) == (2, True)
    done = on_gpus(tmp_path, "sweep", "--resume", "out", devices=2)
    assert "compares MPI or NCCL libraries" in done.stderr


@pytest.mark.parametrize(
    ("version", "algorithms", "protocols", "has"),
    [
        (23102, "allreduce:tree", "Simple", False),
        (23102, "AllReduce:^tree", "LL,Simple;allreduce:^LL", False),
        (23102, "allreduce:tree", "", True),  # a collective that no variable names is left alone
        (23102, "allreduce:tree", "allreduce:Simple", True),
        (23102, "ring;allreduce:tree", "Simple", True),
        (23102, "allreduce:tree;Broadcast:ring", "Simple", True),
        (23102, "", "Simple", True),
        (23007, "allreduce:tree", "Simple", True),
    ],
)
def test_nccl_2_31_has_no_algorithm_for_what_the_variables_leave_out(
    version: int, algorithms: str, protocols: str, has: bool, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_ALGO", algorithms)
    monkeypatch.setenv("NCCL_PROTO", protocols)
    monkeypatch.delenv(NCCL_LIBRARY)
    platform = opened(Machine(2, nccl_version=version), implementations=("nccl",))
    prepare = implementations()["nccl"].prepare
    assert prepare(a_case("allreduce", 64, 2), platform)
    if has:
        assert prepare(a_case("broadcast", 64, 2), platform)
        return
    with pytest.raises(Unsupported, match=re.escape(f"set NCCL_ALGO='ring;{algorithms}'")):
        prepare(a_case("broadcast", 64, 2), platform)


def test_on_a_cpu_there_is_no_release_to_choose(releases: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "on_auto", lambda: "cpu")
    with pytest.raises(UsageError, match=r"libraries for ranks on a GPU, but these run on cpu"):
        collbench.sweep(nccl=str(releases[OLD]), maxbytes=8)


def test_ranks_of_all_releases_have_room_at_once(releases: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def stop(request: object, joined: object, copies: int) -> None:
        asked.append(copies)
        raise UsageError("seen")

    monkeypatch.setattr(sessions, "measured_sweep", stop)
    for names in ("", ",".join(map(str, releases.values()))):
        with pytest.raises(UsageError, match="seen"):
            collbench.sweep(on="gpu", nccl=names)
    assert asked == [1, 2]
