"""What is known of the GPUs before any rank is started, from a driver that tests compile."""

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from collbench.errors import PlatformError
from collbench.platforms import on_auto
from collbench.platforms.gpu import probe
from collbench.present import notices
from collbench.requests.sweeps import SweepRequest, measured_sweep, passed_over
from tests.conftest import Command
from tools.stand_in.probed import build_driver, put_cupy

Build = Callable[..., None]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Compile a driver, by default one that shows no GPU, and let it be found; nothing of another is remembered."""

    def make(devices: int = 0, status: int = 0, delay: int = 0, words: str = "") -> None:
        library = build_driver(tmp_path, devices, status, delay, words)
        monkeypatch.setattr(probe, "_DRIVER", str(library))
        probe._driver.cache_clear()
        probe.broken.cache_clear()

    return make


@pytest.fixture(autouse=True)
def _only_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No driver but the one that a test puts there, on whatever machine."""
    monkeypatch.setattr(probe, "_DRIVER", "libnosuchdriver.so.1")
    probe._driver.cache_clear()
    monkeypatch.setattr(probe, "_DEVICES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    probe.broken.cache_clear()
    yield
    probe.broken.cache_clear()


def test_without_a_driver_there_is_no_gpu_and_no_word() -> None:
    assert probe.memories() == ()
    assert not probe.installed()
    assert probe.obstacle() == ""
    assert on_auto() == "cpu"


def test_the_driver_is_asked_for_its_gpus_by_a_child(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    for devices, status in ((2, 0), (0, 0), (2, 100)):
        build(devices, status)
        assert probe.memories() == (() if status else tuple(2**33 + i for i in range(devices)))
        assert probe.installed()


def test_a_driver_that_shows_no_gpu_says_why(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    hows: list[tuple[dict[str, Any], str]] = [
        ({"status": 100, "words": "no CUDA-capable device"}, "cuInit fails with error 100 (no CUDA-capable device)"),
        ({"status": 803}, "cuInit fails with error 803"),
        ({"devices": 0}, "the CUDA driver shows no GPU"),
        ({"status": -1}, "ended without an answer"),
    ]
    for how, reason in hows:
        build(**how)
        assert reason in probe.obstacle()
        assert "\n" not in probe.obstacle()
        assert on_auto() == "cpu"


def test_what_may_be_the_cause_is_named(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia0").symlink_to(os.devnull)
    build(status=100)
    assert "permission" not in probe.refusal()
    monkeypatch.setattr(os, "access", lambda path, mode: not ("nvidia" in str(path) and mode & os.W_OK))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert f"no permission to use {tmp_path}/nvidia0; CUDA_VISIBLE_DEVICES is '7'" in probe.refusal()


def test_a_driver_that_hangs_is_an_error_for_gpus_and_a_word_for_auto(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(1, delay=600_000)
    monkeypatch.setattr(probe, "_TIMEOUT", 0.5)
    assert "did not answer within 0.5 s" in probe.obstacle()
    assert on_auto() == "cpu"
    with pytest.raises(PlatformError, match=r"did not answer within 0\.5 s: check nvidia-smi, or use --on cpu"):
        probe.refuse_too_large(1, 2)


def test_a_cupy_that_cannot_use_the_gpus_is_told_and_one_that_works_is_no_obstacle(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(2)
    with monkeypatch.context() as real:
        real.setenv("LD_LIBRARY_PATH", str(tmp_path))
        assert "no GPU found (" in probe.obstacle()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    words = "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
    cure = "update the driver (`nvidia-smi` shows up to which CUDA it goes), or use --on cpu"
    for count, chosen in ((f"open('{words}')", "cpu"), ("2", "gpu")):
        probe.broken.cache_clear()
        put_cupy(tmp_path, f"SimpleNamespace(CUDARuntimeError=OSError, getDeviceCount=lambda: {count})")
        assert on_auto() == chosen, count
        assert (f"{words}'): {cure}" in passed_over("auto", chosen)) == (chosen == "cpu"), count
    probe.broken.cache_clear()
    (tmp_path / "cupy" / "__init__.py").write_text("raise ImportError('\\n  first\\nlibnvrtc is too old')\n")
    assert "CuPy cannot be imported (libnvrtc is too old)" in probe.obstacle()
    assert on_auto() == "cpu"


def test_auto_never_falls_back_in_silence(collbench: Command, build: Build, tmp_path: Path) -> None:
    build(status=100, words="no device")
    done = collbench("topo", "auto", LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("collbench: "))
    assert "showing the CPU only" in line
    assert done.stdout


def test_a_driver_that_starts_slowly_is_waited_for_with_a_word(
    build: Build, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probe, "broken", cache(lambda: ""))
    for delay, patience, words in ((1500, 0.5, [notices.DRIVER]), (0, 300, [])):
        build(2, delay=delay)
        monkeypatch.setattr(notices, "SECONDS", patience)
        platform, sweep = measured_sweep(SweepRequest(maxbytes="64", starts=1))
        assert (platform, sweep.ranks) == ("gpu", 2)
        said = [line for line in capsys.readouterr().err.splitlines() if notices.DRIVER in line]
        assert len(said) == len(words)
