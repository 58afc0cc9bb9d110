"""What others install: the wheel and the sdist hold what they must, and work where there is no checkout."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

import collbench
from tests.conftest import ROOT
from tools import lent, outside

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
PROMISED = [
    name for name in (line.rpartition(" ")[2] for line in PROJECT["classifiers"]) if re.fullmatch(r"3\.\d+", name)
]
NEEDED = [re.split(r"[^\w-]", need)[0] for need in PROJECT["dependencies"]]
BUILT = f"collbench-{collbench.__version__}"


def build(folder: Path, into: Path) -> None:
    """Wheel and sdist of the sources in a folder; fetches nothing."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(into)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of this checkout."""
    folder = tmp_path_factory.mktemp("built")
    build(ROOT, folder)
    assert sorted(path.name for path in folder.iterdir()) == [f"{BUILT}-py3-none-any.whl", f"{BUILT}.tar.gz"]
    return folder


def wheel(folder: Path) -> Path:
    """The one in a folder."""
    return folder / f"{BUILT}-py3-none-any.whl"


def contents(file: Path) -> dict[str, bytes]:
    """The files of a wheel."""
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources as they come out of the sdist."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(built / f"{BUILT}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / BUILT


def files(folder: Path) -> dict[str, bytes]:
    """Those below a folder that are sources, by their paths in it."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_the_wheel_is_the_package_its_kernels_and_its_licence(built: Path) -> None:
    """Byte for byte, and nothing else."""
    package = {f"collbench/{name}": text for name, text in files(ROOT / "collbench").items()}
    kernels = {f"collbench/_kernels/{name}": text for name, text in files(ROOT / "kernels").items()}
    about = {name: text for name, text in contents(wheel(built)).items() if name.startswith(f"{BUILT}.dist-info/")}
    assert contents(wheel(built)) == package | kernels | about
    for licence in PROJECT["license-files"]:
        assert about[f"{BUILT}.dist-info/licenses/{licence}"] == (ROOT / licence).read_bytes()
    assert "collbench/report/plotly/plotly-basic.min.js" in package
    assert "collbench/py.typed" in package


def test_the_sdist_builds_the_same_wheel(built: Path, unpacked: Path, tmp_path: Path) -> None:
    """Whoever packages from it gets what we ship."""
    build(unpacked, tmp_path)
    assert contents(wheel(tmp_path)) == contents(wheel(built))


def test_the_sdist_is_the_checkout(unpacked: Path) -> None:
    """All that git has, so `make sweep` and `make test` find what they need; and nothing that git ignores."""
    listing = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached"]
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("no checkout, or no git, to hold it against")
    tracked, known = (
        {name for name in subprocess.check_output([*listing, *more], cwd=ROOT, text=True).split("\0") if name}
        for more in ((), ("--others", "--exclude-standard"))
    )
    inside = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert {name for name in tracked if (ROOT / name).exists()} - inside == set()
    assert inside - known == {"PKG-INFO"}


def python(version: str, folder: Path, variables: Mapping[str, str]) -> str:
    """The Python of that version which has what the package needs; skips, with its own words, where there is none."""
    if version == RUNNING:
        return sys.executable
    path = shutil.which(f"python{version}")
    if path is None:
        pytest.skip(f"no python{version} on the path")
    asking = "import venv, importlib.metadata as had, sys; [had.version(name) for name in sys.argv[1:]]"
    command = [path, "-c", asking, "pip", *NEEDED]
    done = subprocess.run(
        command, cwd=folder, env=dict(variables), capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        words = [line for line in done.stderr.splitlines() if line.strip()] or ["it does not start"]
        pytest.skip(f"{path} cannot be used: {words[0] if 'Traceback' not in words[0] else words[-1]}")
    return path


@pytest.mark.parametrize("version", sorted({*PROMISED, RUNNING}))
def test_the_wheel_works_outside_the_checkout(
    version: str, built: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """In a new environment and an empty folder every module loads, and a user's first commands say what they should."""
    variables = {name: value for name, value in environment.items() if name in outside.surroundings()}
    chosen = python(version, tmp_path, variables)
    new = tmp_path / "new"
    for words in (["-m", "venv", "--without-pip", str(new)], [str(ROOT / "tests" / "lent.py"), str(new)]):
        subprocess.run([chosen, *words], env=variables, check=True, timeout=100)
    outside.installed(wheel(built), new, variables | lent.OFFLINE)
    printed = outside.tried(new, variables)
    assert printed[1].split()[-1] == collbench.__version__
    assert not any(str(ROOT) in text for text in printed)
