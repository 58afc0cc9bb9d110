"""The extra that `make` installs: from what releases of nvidia-smi print, and by a real make."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools import cuda_extra

PRINTED = {path.stem: path.read_text() for path in (Path(__file__).parent / "nvidia_smi").iterdir()}
NO_FIELD = 'Field "compute_cap" is not a valid field to query.\n\n'  # before release 510

CHOICES = {  # what is printed: compute capabilities, the extra, words of the line that says why if it is not plain
    "r570": ("10.0\n", "cuda12", ""),
    "r580": ("9.0\n", "cuda13", ""),
    "r580-mig": ("9.0\n", "cuda13", ""),
    "r610": ("10.0\n10.0\n", "cuda13", ""),
    "wsl-r610": ("12.0\n", "cuda13", ""),
    "r390": ("", "", "before 410"),
    "r470": (NO_FIELD, "", "CUDA is 11.4, and CuPy needs 12 or newer: update the driver"),
    "r470-with-driver-580": (NO_FIELD, "cuda12", "does not say whether a GPU is too old"),
    "r580-volta": ("7.0\n8.6\n", "cuda12", "compute capability 7.0, too old for CUDA 13"),
    "container-without-libcuda": ("8.0\n", "", "'CUDA Version: N/A': libcuda.so.1 is missing"),
    "container-without-libcuda-r610": ("10.0\n", "", "'CUDA UMD Version: N/A': libcuda.so.1 is missing"),
    "no-devices": ("No devices were found\n", "", "'No devices were found'"),
    "no-driver": ("", "", "couldn't communicate with the NVIDIA driver"),
    "mismatch": ("", "", "Driver/library version mismatch"),
}


def test_the_drivers_cuda_decides_and_whatever_is_not_plain_is_explained_in_one_line() -> None:
    assert set(PRINTED) == set(CHOICES)
    for release, (capabilities, extra, words) in CHOICES.items():
        choice = cuda_extra.choose(PRINTED[release], capabilities)
        assert choice.extra == extra, release
        assert words in choice.why, release
        assert bool(choice.why) == bool(words), release
        assert "\n" not in choice.why
        assert extra or "the CPU only" in choice.why, release


def test_the_oldest_gpu_decides_and_one_of_unknown_age_gets_what_runs_on_all_that_the_driver_knows() -> None:
    for capabilities, extra in (("7.5\n", "cuda13"), ("10.0\n7.5\n", "cuda13"), ("10.0\n7.2\n", "cuda12")):
        assert cuda_extra.choose(PRINTED["r580"], capabilities).extra == extra, capabilities
    for answer in ("", NO_FIELD, "[N/A]\n", "9.0\n[N/A]\n", "[Insufficient Permissions]\n"):
        for release, extra in (("r580", "cuda12"), ("r610", "cuda13")):
            choice = cuda_extra.choose(PRINTED[release], answer)
            assert (choice.extra, bool(choice.why)) == (extra, release == "r580"), (release, answer)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with what make needs and no nvidia-smi, and none of an outer make's variables; the folder to add to."""
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "EXTRA", "VENV", "PYTHON"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("make", "sh", "cat", "sleep"):
        (folder / name).symlink_to(str(shutil.which(name)))
    (folder / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def put_nvidia_smi(folder: Path, text: str, interpreter: str = "") -> None:
    (folder / "nvidia-smi").write_text(f"#!{interpreter or folder / 'sh'}\n{text}\n")
    (folder / "nvidia-smi").chmod(0o755)


def install(folder: Path, release: str, capabilities: str) -> Path:
    """A made-up nvidia-smi that prints a recording; the file that it logs its calls in."""
    log = folder / "calls"
    (folder / "shown").write_text(PRINTED[release])
    (folder / "capabilities").write_text(capabilities)
    shown = f'if [ "$#" = 0 ]; then cat {folder}/shown; else cat {folder}/capabilities; fi'
    put_nvidia_smi(folder, f'echo "$*" >> {log}\n{shown}')
    return log


def test_an_nvidia_smi_that_is_missing_or_does_not_run_is_told(
    machine: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cuda_extra.here(traces=()) == ("", "")
    choice = cuda_extra.here(traces=("/no/such/file", str(machine)))
    assert choice.extra == ""
    assert f"an NVIDIA driver ({machine}) but no nvidia-smi" in choice.why
    assert "make EXTRA=cuda12" in choice.why
    put_nvidia_smi(machine, "", "/no/such/shell")
    assert "No such file" in cuda_extra.here().why
    put_nvidia_smi(machine, "sleep 100 &\nsleep 100")
    choice = cuda_extra.here(timeout=0.5, murmur=0.1)
    assert choice.extra == ""
    assert "did not answer within 0.5 s" in choice.why
    (line,) = capfd.readouterr().err.splitlines()
    assert "persistence mode" in line


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What make would do, in a checkout that nothing was installed for."""
    command = ["make", "-n", "VENV=no-such-venv", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)


def test_make_installs_the_extra_and_asks_once(machine: Path) -> None:
    for release, other in (("r610", "cupy-cuda12x"), ("r580-volta", "cupy-cuda13x")):
        capabilities, extra, words = CHOICES[release]
        log = install(machine, release, capabilities)
        log.unlink(missing_ok=True)
        done = make("sweep", "test")
        assert f"--editable '.[{extra}]'" in done.stdout
        assert f"--editable '.[dev,{extra}]'" in done.stdout
        assert re.search(rf"pip uninstall .*{other}\n.*pip install .*{extra}", done.stdout)
        assert len(log.read_text().splitlines()) == 2
        assert bool(done.stderr) == bool(words)
