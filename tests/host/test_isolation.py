"""Whatever lies in the working folder is data: none of it runs, in the command, its ranks or their tools."""

import os
import re
import shutil
from pathlib import Path

import pytest

from collbench.host.isolation import isolated, outside
from collbench.measure.supervisor import rank_environment
from tests.conftest import carried_out

MODULES = ("mpi4py", "random", "socket", "numpy", "json", "click", "sitecustomize", "matplotlib", "runpy", "warnings")
PROGRAMS = ("mpiexec", "mpiexec.gforker", "c++", "g++", "clang++", "nvidia-smi", "as", "ld", "sh", "python")
SETTINGS = {
    "matplotlibrc": "font.size: nonsense\n",
    "matplotlib/matplotlibrc": "font.size: nonsense\n",
    "kernel.cpp": "#error planted\n",
    "atomic": "#error planted\n",
}
SWEEP = ("sweep", "--ranks", "2", "-b", "8", "-e", "8", "-n", "3", "--impl", "mpi,two-shot", "--out", "out")


def plant(folder: Path, *modules: str) -> None:
    """Modules, programs and settings that tell by a file if they are run or read."""
    for name in modules:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'RAN')!r}, 'a').write({name!r} + '\\n')\n")
    for name in PROGRAMS:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> {folder / 'RAN'}\nexit 1\n")
        (folder / name).chmod(0o755)
    for name, text in SETTINGS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def ran(folder: Path) -> str:
    return (folder / "RAN").read_text() if (folder / "RAN").exists() else ""


def test_a_sweep_runs_nothing_from_the_working_folder(tmp_path: Path, environment: dict[str, str]) -> None:
    plant(tmp_path, *MODULES, "collbench")
    shutil.copytree(tmp_path, tmp_path / "bin")
    path = f":.:bin:../{tmp_path.name}:{os.environ['PATH']}:."
    own = {"PATH": path, "COLLBENCH_CACHE": str(tmp_path / "cache"), "XDG_CONFIG_HOME": ".", "PYTHONSAFEPATH": "1"}
    done = carried_out(tmp_path, environment | own, *SWEEP)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"\bok$| disturbed: ", done.stdout, re.MULTILINE)) == 2
    assert "plot: out" in done.stdout
    assert "nonsense" not in done.stderr
    assert not ran(tmp_path)


def test_ranks_and_python_m_run_nothing_from_it_either(tmp_path: Path, environment: dict[str, str]) -> None:
    plant(tmp_path, "mpi4py", "random", "socket", "numpy", "click")
    (tmp_path / "later").mkdir()
    plant(tmp_path / "later", "mpi4py", "numpy", "matplotlib", "jinja2", "sitecustomize")
    own = {"PYTHONPATH": f"{environment['PYTHONPATH']}:later"}
    done = carried_out(tmp_path, environment | own, *SWEEP, "--no-plot")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("PYTHONPATH has an empty or relative entry") == 1
    assert not ran(tmp_path)
    assert ran(tmp_path / "later") in ("", "sitecustomize\n")  # which Python itself runs before any command


def test_a_path_by_which_python_itself_looks_there_is_said_once_for_all_ranks(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    mine = environment["PYTHONPATH"]
    for path, rank, said in ((f"{mine}:", 0, 1), (f"x:{mine}", 0, 1), (f"{mine}:", 1, 0), (mine, 0, 0), ("", 0, 0)):
        own = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "WORLD_SIZE": "2", "RANK": str(rank)}
        done = carried_out(tmp_path, environment | own, "--version")
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("\n") == done.stderr.count("PYTHONPATH has an empty or relative entry") == said, path


def test_search_paths_keep_what_was_decided_and_lose_what_depends_on_the_folder() -> None:
    given = {"PATH": ":/a:.:b:/c:", "PYTHONPATH": "/p::q", "XDG_CACHE_HOME": "x", "XDG_CONFIG_HOME": "/y", "HOME": "/h"}
    left = {"PATH": "/a:/c", "PYTHONPATH": "/p", "XDG_CONFIG_HOME": "/y", "HOME": "/h", "PYTHONSAFEPATH": "1"}
    assert isolated(given) == left
    assert isolated({"PATH": ".", "PYTHONPATH": "."}) == {"PATH": "/bin:/usr/bin", "PYTHONSAFEPATH": "1"}


def test_ranks_get_the_isolated_environment_whatever_the_setting_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", ":/mine:theirs")
    given = rank_environment("cpu", tmp_path, {})
    assert given["PATH"].split(":")[0].startswith("/")
    assert given["PYTHONPATH"].split(":")[1:] == ["/mine"]
    assert given["PYTHONSAFEPATH"] == "1"


def test_the_working_folder_comes_back_also_after_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    def fail() -> None:
        with outside(Path("/")):
            assert Path.cwd() == Path("/")
            raise ImportError

    with pytest.raises(ImportError):
        fail()
    assert Path.cwd() == tmp_path
