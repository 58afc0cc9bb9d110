"""The extra that `make` installs: from what releases of nvidia-smi print, and by a real make."""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from collbench.platforms.gpu import cuda_extra
from tests.conftest import ROOT

PRINTED = {path.stem: path.read_text() for path in (Path(__file__).parent / "nvidia_smi").iterdir()}
NO_FIELD = 'Field "compute_cap" is not a valid field to query.\n\n'  # before release 510
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

PLAIN = {  # nothing to explain: what is printed, the compute capabilities, the extra
    "r525-mig": ("8.0\n", "cuda12"),
    "r535": ("8.0\n8.0\n", "cuda12"),
    "r550": ("9.0\n9.0\n", "cuda12"),
    "r570": ("10.0\n", "cuda12"),
    "r580": ("9.0\n", "cuda13"),
    "r580-mig": ("9.0\n", "cuda13"),
    "r610": ("10.0\n10.0\n", "cuda13"),
    "wsl": ("8.9\n", "cuda12"),
    "wsl-r610": ("12.0\n", "cuda13"),
}
EXPLAINED = {  # the same, with words of the one line that says why
    "r390": ("", "", "before 410"),
    "r470": (NO_FIELD, "", "CUDA is 11.4, and CuPy needs 12 or newer: update the driver"),
    "r470-with-driver-580": (NO_FIELD, "cuda12", "does not say whether a GPU is too old"),
    "r580-volta": ("7.0\n8.6\n", "cuda12", "compute capability 7.0, too old for CUDA 13"),
    "container-without-libcuda": ("8.0\n", "", "'CUDA Version: N/A': libcuda.so.1 is missing"),
    "container-without-libcuda-r610": ("10.0\n", "", "'CUDA UMD Version: N/A': libcuda.so.1 is missing"),
    "no-devices": ("No devices were found\n", "", "'No devices were found'"),
    "no-driver": ("", "", "couldn't communicate with the NVIDIA driver"),
    "mismatch": ("", "", "Driver/library version mismatch"),
    "no-permission": ("", "", "Insufficient Permissions"),
}


def test_every_recorded_output_is_judged() -> None:
    """A new recording needs an expectation."""
    assert set(PRINTED) == set(PLAIN) | set(EXPLAINED)


@pytest.mark.parametrize("release", PLAIN)
def test_a_plain_choice_needs_no_words(release: str) -> None:
    """The driver's CUDA decides, by either name that nvidia-smi has for it."""
    capabilities, extra = PLAIN[release]
    assert cuda_extra.choose(PRINTED[release], capabilities) == (extra, "")


@pytest.mark.parametrize("release", EXPLAINED)
def test_any_other_choice_says_why_in_one_line(release: str) -> None:
    """Whether it is the older extra or none."""
    capabilities, extra, words = EXPLAINED[release]
    choice = cuda_extra.choose(PRINTED[release], capabilities)
    assert choice.extra == extra
    assert words in choice.why
    assert "\n" not in choice.why
    assert extra or "the CPU only" in choice.why


@pytest.mark.parametrize("extra", sorted({extra for _, extra in PLAIN.values()}))
def test_every_choice_is_an_extra_of_the_project(extra: str) -> None:
    """And its packages without a suffix in their name are bound to its CUDA."""
    major = extra.removeprefix("cuda")
    for need in EXTRAS[extra]:
        if re.match(r"nvidia-cuda-\w+(?!.*-cu\d)", need):
            assert f">={major},<{int(major) + 1}" in need or f"-cu{major}" in need, need


@pytest.mark.parametrize("release", ["r580", "r610"])
@pytest.mark.parametrize("answer", ["", NO_FIELD, "[N/A]\n", "9.0\n[N/A]\n", "[Insufficient Permissions]\n"])
def test_gpus_of_unknown_age_get_what_runs_on_all_that_the_driver_knows(release: str, answer: str) -> None:
    """Release 580 still runs Volta, which needs CUDA 12; newer ones do not, so CUDA 13 is safe."""
    choice = cuda_extra.choose(PRINTED[release], answer)
    assert choice.extra == ("cuda12" if release == "r580" else "cuda13")
    assert bool(choice.why) == (release == "r580")


@pytest.mark.parametrize(
    ("capabilities", "extra"), [("7.5\n", "cuda13"), ("10.0\n7.5\n", "cuda13"), ("10.0\n7.2\n", "cuda12")]
)
def test_the_oldest_gpu_decides(capabilities: str, extra: str) -> None:
    """As numbers: 10.0 is newer than 7.5."""
    assert cuda_extra.choose(PRINTED["r580"], capabilities).extra == extra


def test_a_driver_without_gpus_to_show_is_no_version() -> None:
    """Some releases print a whole header above it."""
    choice = cuda_extra.choose(PRINTED["r610"], "No devices were found\n")
    assert choice.extra == ""
    assert "No devices were found" in choice.why


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


def install(folder: Path, release: str, capabilities: str) -> Path:
    """A made-up nvidia-smi that prints a recording; the file that it logs its calls in."""
    log = folder / "calls"
    (folder / "shown").write_text(PRINTED[release])
    (folder / "capabilities").write_text(capabilities)
    program = folder / "nvidia-smi"
    program.write_text(
        f'#!{folder}/sh\necho "$*" >> {log}\n'
        f'if [ "$#" = 0 ]; then cat {folder}/shown; else cat {folder}/capabilities; fi\n'
    )
    program.chmod(0o755)
    return log


def script() -> subprocess.CompletedProcess[str]:
    """As make runs it."""
    command = ["python3", "-I", "collbench/platforms/gpu/cuda_extra.py"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)


@pytest.mark.parametrize("release", {**PLAIN, **EXPLAINED})
def test_the_script_prints_the_extra_and_why(machine: Path, release: str) -> None:
    """Alone on stdout, and one line on stderr where it is not plain."""
    capabilities, extra = (PLAIN.get(release) or EXPLAINED[release])[:2]
    install(machine, release, capabilities)
    done = script()
    assert done.stdout == extra
    assert len(done.stderr.splitlines()) == (release in EXPLAINED)
    assert all(line.startswith("collbench: ") for line in done.stderr.splitlines())


def test_a_machine_without_a_driver_hears_nothing(machine: Path) -> None:
    """And gets no extra."""
    assert cuda_extra.here(traces=()) == ("", "")


def test_a_driver_without_nvidia_smi_is_told(machine: Path) -> None:
    """As in a container that was given the devices and nothing else."""
    choice = cuda_extra.here(traces=("/no/such/file", str(machine)))
    assert choice.extra == ""
    assert f"an NVIDIA driver ({machine}) but no nvidia-smi" in choice.why
    assert "make EXTRA=cuda12" in choice.why


def test_an_nvidia_smi_that_hangs_is_given_up(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """After a word to who waits; what it started may keep its output open and holds nobody up."""
    (machine / "nvidia-smi").write_text(f"#!{machine}/sh\nsleep 30 &\nsleep 30\n")
    (machine / "nvidia-smi").chmod(0o755)
    begun = time.monotonic()
    choice = cuda_extra.here(patience=0.5, murmur=0.1)
    assert time.monotonic() - begun < 10
    assert choice.extra == ""
    assert "did not answer within 0.5 s" in choice.why
    (line,) = capfd.readouterr().err.splitlines()
    assert "persistence mode" in line


def test_an_nvidia_smi_that_cannot_be_run_is_told(machine: Path) -> None:
    """The system's own words."""
    (machine / "nvidia-smi").write_text("#!/no/such/shell\n")
    (machine / "nvidia-smi").chmod(0o755)
    assert "No such file" in cuda_extra.here().why


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What make would do, in a checkout that nothing was installed for."""
    command = ["make", "-n", "VENV=no-such-venv", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)


@pytest.mark.parametrize(
    ("release", "capabilities", "extra"),
    [("r610", "10.0\n10.0\n", "cuda13"), ("r550", "9.0\n9.0\n", "cuda12"), ("r580-volta", "7.0\n8.6\n", "cuda12")],
)
def test_make_installs_the_extra_and_asks_once(machine: Path, release: str, capabilities: str, extra: str) -> None:
    """One look at the header and one at the GPUs for both environments; the CuPy of the other CUDA goes first."""
    log = install(machine, release, capabilities)
    done = make("sweep", "test")
    assert f"--editable '.[{extra}]'" in done.stdout
    assert f"--editable '.[dev,{extra}]'" in done.stdout
    other = {"cuda12": "cupy-cuda13x", "cuda13": "cupy-cuda12x"}[extra]
    assert re.search(rf"pip uninstall .*{other}\n.*pip install .*{extra}", done.stdout)
    assert len(log.read_text().splitlines()) == 2
    assert bool(done.stderr) == (release == "r580-volta")


@pytest.mark.parametrize("target", ["clean", "compiler"])
def test_what_installs_nothing_asks_nobody(machine: Path, target: str) -> None:
    """An nvidia-smi may take long."""
    log = install(machine, "r610", "10.0\n")
    make(target)
    assert not log.exists()


def test_an_extra_that_is_named_is_installed_over_what_is_there(machine: Path, tmp_path: Path) -> None:
    """The driver is not asked, and a finished installation is no reason to do nothing."""
    log = install(machine, "mismatch", "")
    (tmp_path / "bin" / "python").touch()
    (tmp_path / ".run").touch()
    environment = f"VENV={tmp_path}"
    assert "--editable" not in make(environment, "sweep").stdout
    assert "--editable '.[cuda12]'" in make(environment, "EXTRA=cuda12", "sweep").stdout
    assert not log.exists()


def test_without_nvidia_smi_make_installs_no_extra(machine: Path) -> None:
    """Nothing for GPUs, and not a word, where there is no driver."""
    if any(map(os.path.exists, cuda_extra.TRACES)):
        pytest.skip("this machine has a driver")
    done = make("sweep")
    assert "--editable '.'" in done.stdout
    assert done.stderr == ""
