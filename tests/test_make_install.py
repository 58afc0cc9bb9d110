"""`make install` puts one command where a user's shell finds it, and takes back what it put, and no more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import collbench
from tests.conftest import ROOT
from tools import lent

OF_AN_OUTER_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "EXTRA", "VENV", "PYTHON", "PREFIX")


@pytest.fixture
def variables(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Those of a user whose Python finds all packages but collbench, so that pip has nothing to fetch."""
    kept = {name: value for name, value in environment.items() if name not in OF_AN_OUTER_MAKE}
    kept |= lent.OFFLINE | {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_COMPILE": "1"}  # 0: pip's way to say no isolation
    return kept | {"PYTHONPATH": str(lent.packages(tmp_path / "lent")), "HOME": str(tmp_path)}


def make(variables: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """To its end, in the checkout, with this Python and without a GPU's packages."""
    command = ["make", f"PYTHON={sys.executable}", "EXTRA=", *words]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=100, check=False)


def left(folder: Path) -> set[str]:
    """What is in a folder and below, links as such."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_the_command_is_installed_works_and_is_removed(variables: dict[str, str], tmp_path: Path) -> None:
    """From a folder whose name has a space, in which other commands are and stay."""
    prefix = tmp_path / "my own"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "other").touch()
    done = make(variables, "install", f"PREFIX={prefix}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"installed: {prefix}/bin/collbench\n" in done.stdout
    assert f'{prefix}/bin is not on the PATH; fix: export PATH="{prefix}/bin:$PATH"\n' in done.stderr
    shown = subprocess.check_output([prefix / "bin" / "collbench", "--version"], cwd=tmp_path, env=variables, text=True)
    assert collbench.__version__ in shown
    where = [prefix / "share/collbench/bin/python", "-c", "import collbench; print(collbench.__file__)"]
    assert subprocess.check_output(where, cwd=tmp_path, env=variables, text=True).startswith(
        f"{prefix}/share/collbench/lib"
    )
    assert make(variables, "uninstall", f"PREFIX={prefix}").returncode == 0
    assert left(prefix) == {"bin", "bin/other", "share"}


def test_it_goes_into_the_users_own_folder(variables: dict[str, str], tmp_path: Path) -> None:
    """`~/.local`, where shells and pipx look, and says nothing of the PATH that has it."""
    on_path = variables | {"PATH": f"{tmp_path}/.local/bin:{os.environ['PATH']}"}
    done = make(on_path, "-n", "install")
    assert f'-m venv --clear "{tmp_path}/.local/share/collbench"' in done.stdout
    assert f'ln -sfn "{tmp_path}/.local/share/collbench/bin/collbench" "{tmp_path}/.local/bin/collbench"' in done.stdout


@pytest.mark.parametrize("target", ["install", "uninstall"])
@pytest.mark.parametrize("name", ["bin/collbench", "share/collbench/notes"])
def test_what_others_put_there_stays(variables: dict[str, str], tmp_path: Path, target: str, name: str) -> None:
    """One line says what is in the way, and what to do."""
    theirs = tmp_path / name
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs")
    before = left(tmp_path)
    done = make(variables, target, f"PREFIX={tmp_path}")
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("collbench: error: ")]
    assert line.endswith(f"was not made by make install; fix: make {target} PREFIX=...")
    assert (left(tmp_path), theirs.read_text()) == (before, "theirs")
