"""A test of wheel and sdist: install them into new environments, and use them in an empty folder.

`python tools/outside.py FILE...` tests each file with the Python that runs it, and downloads the dependencies.  Only
the standard library is imported, so that any Python can run it.
"""

import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

EVERY_MODULE = """
import importlib, pkgutil, sys, collbench
from collbench.platforms.compiler import own_folder

for found in pkgutil.walk_packages(collbench.__path__, "collbench."):
    if found.name != "collbench.__main__":
        importlib.import_module(found.name)
ours = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "collbench"]
print(len(ours), "modules,", len(list(own_folder().rglob("*.cu"))), "kernels")
strangers = [name for name in [*ours, str(own_folder())] if not name.startswith(sys.prefix)]
sys.exit(f"not of this environment: {strangers}" if strangers else 0)
"""


@dataclass(frozen=True)
class Trial:
    """A command of the environment's `bin`, and a pattern of its output."""

    command: tuple[str, ...]
    prints: str


TRIALS = (
    Trial(("python", "-c", EVERY_MODULE), r"\d{3} modules, \d\d kernels"),
    Trial(("collbench", "--version"), r"\d+\.\d+\.\d+"),
    Trial(("collbench", "list"), "dgx-h100"),
    Trial(("collbench", "predict", "dgx-h100", "-b", "1M", "-e", "1M", "--no-plot"), r"1 MiB +nccl.* predicted"),
    Trial(
        ("collbench", "sweep", "--on", "cpu", "--impl", "mpi,two-shot", "-b", "8", "-e", "8", "--out", "run"),
        r"two-shot.* (ok|disturbed)",  # other programs may disturb it
    ),
    Trial(("collbench", "report", "run"), r"report\.html"),
)
"""A user's first commands; together they need every kind of file: modules, kernels, presets, templates."""


def surroundings() -> dict[str, str]:
    """Return the variables of a user without this checkout and this Python on a path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return kept | {"PYTHONWARNINGS": "default"}  # to show warnings of features that the next Python removes


def tried(environment: Path, variables: Mapping[str, str]) -> list[str]:
    """Return the output of each trial, in a new empty folder; RuntimeError with the output of a failure."""
    printed = []
    with tempfile.TemporaryDirectory() as folder:
        for trial in TRIALS:
            program = str(environment / "bin" / trial.command[0])
            done = subprocess.run(
                [program, *trial.command[1:]],
                cwd=folder,
                env=dict(variables),
                capture_output=True,
                text=True,
                timeout=300,
            )
            said = f"{' '.join(trial.command)}: status {done.returncode}\n{done.stdout}{done.stderr}"
            if done.returncode or not re.search(trial.prints, done.stdout) or re.search(r"\wWarning: ", done.stderr):
                raise RuntimeError(said)
            printed.append(done.stdout)
    return printed


def installed(file: Path, environment: Path, variables: Mapping[str, str]) -> None:
    """Install a wheel or sdist with its dependencies into an environment; CalledProcessError if pip fails."""
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    quiet = {**variables, "PYTHONWARNINGS": "ignore"}  # hides pip's own warnings
    subprocess.run([*pip, str(file.resolve())], cwd=environment, env=quiet, check=True)


def main(files: list[str]) -> None:
    """Install and try each file; the first failure ends the program with its output."""
    if not files:
        sys.exit("outside.py: error: no wheel or sdist is named; fix: make wheel, then dist/*")
    for name in files:
        with tempfile.TemporaryDirectory() as folder:
            venv.create(folder, with_pip=True)
            installed(Path(name), Path(folder), surroundings())
            printed = tried(Path(folder), surroundings())
        python, modules = sys.version.split()[0], printed[0].strip()
        sys.stdout.write(f"Python {python}, {Path(name).name}: {modules}, {len(TRIALS)} commands, all right\n")


if __name__ == "__main__":
    main(sys.argv[1:])
