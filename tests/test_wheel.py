"""What others install: wheel, sdist and `make install` hold what they must, and work where there is no checkout."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import collbench
from tests.conftest import ROOT
from tests.test_project import PROJECT
from tools import lent, outside

BUILT = f"collbench-{collbench.__version__}"
OF_AN_OUTER_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "EXTRA", "VENV", "PYTHON", "PREFIX")


def build(folder: Path, into: Path) -> Path:
    """Wheel and sdist of the sources in a folder, of which the wheel; fetches nothing."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(into)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return into / f"{BUILT}-py3-none-any.whl"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("built"))


def contents(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def files(folder: Path, place: str) -> dict[str, bytes]:
    """Those below a folder that are sources, by their paths in the wheel."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {f"{place}/{path.relative_to(folder)}": path.read_bytes() for path in found}


@pytest.mark.full
def test_the_wheel_is_the_package_its_kernels_and_its_licences_and_nothing_else(wheel: Path) -> None:
    held = contents(wheel)
    about = {name: text for name, text in held.items() if name.startswith(f"{BUILT}.dist-info/")}
    assert held == files(ROOT / "collbench", "collbench") | files(ROOT / "kernels", "collbench/_kernels") | about
    for licence in PROJECT["license-files"]:
        assert about[f"{BUILT}.dist-info/licenses/{licence}"] == (ROOT / licence).read_bytes(), licence
    assert {"collbench/present/assets/plotly/plotly-basic.min.js", "collbench/py.typed"} <= set(held)


@pytest.mark.full
def test_the_sdist_is_the_checkout_and_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(wheel.with_name(f"{BUILT}.tar.gz")) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # which Python has since 3.11.4
        archive.extractall(tmp_path)
    unpacked = tmp_path / BUILT
    assert contents(build(unpacked, tmp_path / "again")) == contents(wheel)
    if (ROOT / ".git").exists() and shutil.which("git"):
        listing = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached"]
        tracked, known = (
            {name for name in subprocess.check_output([*listing, *more], cwd=ROOT, text=True).split("\0") if name}
            for more in ((), ("--others", "--exclude-standard"))
        )
        inside = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
        assert {name for name in tracked if (ROOT / name).exists()} - inside == set()
        assert inside - known == {"PKG-INFO"}


@pytest.mark.full
def test_the_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    variables = {name: value for name, value in environment.items() if name in outside.surroundings()}
    new = tmp_path / "new"
    for words in (["-m", "venv", "--without-pip", str(new)], [str(ROOT / "tools" / "lent.py"), str(new)]):
        subprocess.run([sys.executable, *words], env=variables, check=True, timeout=250)
    outside.installed(wheel, new, variables | lent.OFFLINE)
    printed = outside.tried(new, variables)
    assert printed[1].split()[-1] == collbench.__version__
    assert not any(str(ROOT) in text for text in printed)


@pytest.fixture
def variables(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Those of a user whose Python finds all packages but collbench, so that pip has nothing to fetch."""
    kept = {name: value for name, value in environment.items() if name not in OF_AN_OUTER_MAKE}
    kept |= lent.OFFLINE | {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_COMPILE": "1"}  # 0: pip's way to say no isolation
    return kept | {"PYTHONPATH": str(lent.packages(tmp_path / "lent")), "HOME": str(tmp_path)}


def make(variables: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """To its end, in the checkout, with this Python and without a GPU's packages."""
    command = ["make", f"PYTHON={sys.executable}", "EXTRA=", *words]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=250, check=False)


def left(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.full
def test_make_install_puts_a_command_that_works_and_takes_it_back(variables: dict[str, str], tmp_path: Path) -> None:
    prefix = tmp_path / "my own"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "other").touch()
    commands = {f"bin/{name}" for name in PROJECT["scripts"]}
    done = make(variables, "install", f"PREFIX={prefix}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"installed: {prefix}/bin/collbench, and beside it " in done.stdout
    assert {f"bin/{path.name}" for path in (prefix / "bin").iterdir()} == {*commands, "bin/other"}
    assert f'{prefix}/bin is not on the PATH; fix: export PATH="{prefix}/bin:$PATH"\n' in done.stderr
    shown = subprocess.check_output([prefix / "bin" / "collbench", "--version"], cwd=tmp_path, env=variables, text=True)
    assert collbench.__version__ in shown
    program = [prefix / "bin" / "all_reduce_perf", "--help"]
    assert "nccl-tests" in subprocess.check_output(program, cwd=tmp_path, env=variables, text=True)
    assert make(variables, "uninstall", f"PREFIX={prefix}").returncode == 0
    assert left(prefix) == {"bin", "bin/other", "share"}


def test_make_install_and_uninstall_leave_what_others_put_there(variables: dict[str, str], tmp_path: Path) -> None:
    programs = [("install", f"bin/{name}") for name in PROJECT["scripts"]]
    for target, name in (*programs, ("uninstall", "bin/all_reduce_perf"), ("uninstall", "share/collbench/notes")):
        theirs = tmp_path / target / name
        theirs.parent.mkdir(parents=True, exist_ok=True)
        theirs.write_text("theirs")
        before = left(tmp_path / target)
        done = make(variables, target, f"PREFIX={tmp_path / target}")
        assert done.returncode == 2
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("collbench: error: ")]
        assert line.endswith(f"was not made by make install; fix: make {target} PREFIX=...")
        assert (left(tmp_path / target), theirs.read_text()) == (before, "theirs")
        theirs.unlink()


def test_make_help_has_a_sentence_for_every_target(variables: dict[str, str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert targets
    lines = make(variables, "help").stdout.splitlines()
    told = {line.split()[0]: line for line in lines if line.startswith("  ")}
    assert set(told) == {*targets[1].split()} - {"ours", "cupy", "compiler"}
    assert [line for line in told.values() if not line.endswith(".") or len(line) > 120] == []
