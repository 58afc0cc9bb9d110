"""Whole commands on made-up GPUs, in processes of their own: what they say, and what their run files hold."""

from pathlib import Path
from typing import Any

import pytest

from collbench.analysis.machine import discovered
from collbench.measurement import Measurement
from collbench.runs.file import read
from collbench.topology.devices import Kind
from collbench.topology.topology import Topology
from tests.platforms.gpu.whole_commands import on_gpus

SWEEP = ("sweep", "--impl", "nccl", "-b", "64", "-e", "64", "-n", "2", "--no-plot", "--out", "out")
SLICES: dict[str, Any] = {"devices": 2, "buses": {"1": 0}}


def joined(folder: Path) -> Topology:
    """What the header of the run there says of the GPUs."""
    topology = discovered(read(folder))
    assert topology
    return topology


def test_the_header_of_a_sweep_says_what_joins_the_gpus(tmp_path: Path) -> None:
    """Each is known by NVML's facts: its bus, what it can compute, and the slot that it is in."""
    done = on_gpus(tmp_path, *SWEEP, devices=2)
    assert done.returncode == 0, done.stderr
    topology = joined(tmp_path / "out")
    assert [(link.kind, link.p2p) for link in topology.links] == [(Kind.PCIE, "yes")]
    assert [(gpu.bus_id, gpu.capability) for gpu in topology.gpus] == [("0000:00:00.0", "9.0"), ("0000:01:00.0", "9.0")]


def test_a_switch_adds_in_a_whole_command(tmp_path: Path) -> None:
    """`nvls` has memory that the switch knows, and is right."""
    words = [word.replace("nccl", "nvls") for word in SWEEP]
    done = on_gpus(tmp_path, *words, devices=2, switch=True)
    assert done.returncode == 0, done.stderr
    assert [isinstance(row, Measurement) and row.right for row in read(tmp_path / "out").results] == [True]
    assert [link.kind for link in joined(tmp_path / "out").links] == [Kind.NVSWITCH]


def test_slices_of_a_gpu_are_no_gpus_on_a_bus(tmp_path: Path) -> None:
    """`diagnose` expects nothing of them, and says why; of no line rate it knows either."""
    assert on_gpus(tmp_path, *SWEEP, **SLICES).returncode == 0
    done = on_gpus(tmp_path, "diagnose", "out", **SLICES)
    assert "no system has MIG slices" in done.stdout
    assert "expected" not in done.stdout
    assert "slot," not in done.stdout


@pytest.mark.parametrize(
    ("nvml", "reason"), [(12, "a container needs NVIDIA_DRIVER_CAPABILITIES"), ("missing", "pip install nvidia-ml-py")]
)
def test_without_nvml_the_header_has_what_cuda_knows_and_the_reason(nvml: object, reason: str, tmp_path: Path) -> None:
    """The sweep says it, too, and `diagnose` takes nothing for granted."""
    done = on_gpus(tmp_path, *SWEEP, devices=2, nvml=nvml)
    assert done.returncode == 0, done.stderr
    topology = joined(tmp_path / "out")
    assert not topology.links
    assert [gpu.uuid for gpu in topology.gpus] == ["01" * 16, "02" * 16]
    assert topology.unseen.startswith("links and slots of the GPUs are not known: NVML cannot be used (")
    assert reason in topology.unseen
    assert f"note: {topology.unseen}" in done.stderr.splitlines()


def test_styles_train_on_the_cpu_of_a_machine_with_gpus(tmp_path: Path) -> None:
    """By `auto`, which says so."""
    words = ("--style", "library", "--ranks", "2", "--steps", "8", "--seeds", "1", "--out", "out")
    done = on_gpus(tmp_path, "styles", *words, devices=2)
    assert done.returncode == 0, done.stderr
    assert "collbench: the job is computed by NumPy, so this is the cpu, and no gpu is used" in done.stderr.splitlines()
    assert [(row.platform, row.right) for row in read(tmp_path / "out").results] == [("cpu", True)]  # type: ignore[union-attr]
