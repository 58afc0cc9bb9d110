"""`collbench topo` on a made-up NVML, and on the made-up CUDA of tests/platforms."""

import json
import sys

import pytest
from click.testing import CliRunner

from collbench.cli.topo import command
from collbench.errors import PlatformError
from collbench.platforms.gpu import discover, probe
from collbench.topology.topology import Topology
from tests.platforms.gpu.fake_cuda import Machine
from tests.topology.fake_nvml import FakeGpu, FakeNvml, bus

NO_DRIVER, NO_LIBRARY = 9, 12  # NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIBRARY_NOT_FOUND
TWO = ("0000:2a:00.0", "0000:0a:00.0")  # of dgx_h100's GPUs, as CUDA writes them, and in another order than NVML's


def topo(*arguments):
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


@pytest.fixture
def nvml(monkeypatch, dgx_h100):
    """Eight GPUs in the driver, and no CuPy."""
    monkeypatch.setitem(sys.modules, "pynvml", dgx_h100)
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return dgx_h100


@pytest.fixture
def cuda(nvml, monkeypatch):
    """CuPy on a machine of which CUDA shows what it is told to."""
    machines = []

    def show(**changes):
        machines.append(Machine(**changes))
        monkeypatch.setattr(probe, "missing", lambda: "")
        monkeypatch.setattr(discover, "load_cupy", machines[-1].cupy)
        return machines[-1]

    yield show
    for machine in machines:
        machine.stop()


def test_the_cpu_can_be_asked_for(nvml):
    """Also where there are GPUs."""
    assert topo("--on", "cpu", "--ranks", "3").output.startswith("3 ranks on ")


def test_auto_prefers_gpus(nvml):
    """As a sweep does."""
    assert topo().output.startswith("8 x NVIDIA H100 80GB HBM3, NVSwitch\n")


def test_auto_falls_back_to_the_cpu(nvml):
    """No driver, no message: the CPU is the answer."""
    nvml.init_error = NO_DRIVER
    result = topo()
    assert " on " in result.stdout.splitlines()[0]


def test_gpus_that_are_not_there_are_an_error(nvml):
    """Whoever asks for GPUs must not get the CPU."""
    nvml.init_error = NO_DRIVER
    with pytest.raises(
        PlatformError, match=r"^no GPU can be used: NVML .* \(Driver Not Loaded\).*, or choose --on cpu$"
    ):
        topo("--on", "gpu")


def test_without_nvml_gpus_are_named_as_cuda_has_them(nvml, cuda, monkeypatch):
    """With the reason, as a sweep's header has them; what joins them is no matter of guessing."""
    nvml.init_error = NO_LIBRARY
    cuda(devices=2)
    monkeypatch.setattr(probe, "available", lambda: True)
    result = topo("--ranks", "4")
    words = " ".join(result.stdout.split())
    assert words.startswith("4 ranks sharing 2 x Test GPU what joins them is not known same gpu ranks on one device")
    assert "GPU 1 0000:01:00.0" in words
    assert (
        "note: links and slots of the GPUs are not known: NVML cannot be used (NVML Shared Library Not Found)" in words
    )
    shown = Topology.from_json(json.loads(topo("--json", "--ranks", "1").output))
    assert [(gpu.bus_id, gpu.uuid) for gpu in shown.gpus] == [("0000:00:00.0", "01" * 16)]


def test_without_nvml_cuda_has_to_work(nvml, cuda, monkeypatch):
    """Else nobody has seen a GPU, and the reason is NVML's; a driver that shows none is not asked for names."""
    nvml.init_error = NO_LIBRARY
    cuda(devices=2)
    for doubt, answer in (("available", False), ("missing", "CuPy")):
        with monkeypatch.context() as patch:
            patch.setattr(probe, "available", lambda: True)
            patch.setattr(probe, doubt, lambda answer=answer: answer)
            with pytest.raises(
                PlatformError, match=r"^no GPU can be used: NVML cannot be used .*, or choose --on cpu$"
            ):
                topo("--on", "gpu")


def test_json_is_the_header_of_a_run_file(nvml):
    """What is printed can be read back."""
    assert Topology.from_json(json.loads(topo("--json", "--ranks", "2").output)).ranks == 2


def test_without_cupy_peer_access_is_unprobed(nvml):
    """The text names the package to install."""
    shown = " ".join(topo().output.split())
    assert "peer access unprobed (needs CuPy: pip install 'collbench[cuda12]' (or cuda13))" in shown


def test_without_cupy_a_choice_of_gpus_is_not_silently_ignored(nvml, monkeypatch):
    """NVML shows GPUs that CUDA would not use."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert "CUDA_VISIBLE_DEVICES is not applied" in topo().stderr


def test_gpus_are_probed_in_the_order_of_cuda(cuda):
    """Numbers in the probe's answer are CUDA's: its GPU 1 is another one than NVML's."""
    cuda(devices=2, buses={0: 0x2A, 1: 0x0A}, losing_copies={(1, 0)})
    shown = Topology.from_json(json.loads(topo("--json").output))
    assert tuple(gpu.bus_id for gpu in shown.gpus) == TWO
    assert (shown.links[0].p2p, shown.links[0].reason) == ("no", "a copy gave wrong data")


def test_peer_access_that_was_proved_is_shown_as_such(cuda):
    """By the real probe, on every pair."""
    machine = cuda(devices=2, buses={0: 0x2A, 1: 0x0A})
    assert Topology.from_json(json.loads(topo("--json").output)).links[0].p2p == "yes"
    assert not machine.blocks, "the probe's buffers are given back"


def test_every_gpu_that_both_show_is_listed_and_probed(cuda, monkeypatch):
    """By the numbers that CUDA gives them."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([FakeGpu("Test GPU", bus(i)) for i in range(2)]))
    cuda(devices=2)
    shown = Topology.from_json(json.loads(topo("--on", "gpu", "--json").output))
    assert [gpu.bus_id for gpu in shown.gpus] == ["0000:00:00.0", "0000:01:00.0"]
    assert [link.p2p for link in shown.links] == ["yes"]


def test_cuda_that_shows_no_gpu_is_the_reason(cuda, monkeypatch):
    """It leaves the driver's facts, and says so; also that a choice of GPUs was not applied."""
    cuda(devices=0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = topo()
    assert result.stdout.startswith("8 x NVIDIA H100 80GB HBM3")
    assert "peer access unprobed (no GPU found (cudaErrorNoDevice: " in " ".join(result.stdout.split())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert "CUDA_VISIBLE_DEVICES is not applied (no GPU found" in topo().stderr


def test_a_gpu_that_nvml_does_not_show_is_the_reason(cuda):
    """As with the driver of another container; the probe is left out, since nobody could say which GPUs it meant."""
    machine = cuda(devices=2, buses={0: 0x99, 1: 0x0A})
    shown = " ".join(topo().stdout.split())
    assert "peer access unprobed (CUDA uses the GPU at 0000:99:00.0, which NVML does not show" in shown
    assert not machine.streams


def test_an_unknown_place_lists_the_choices(nvml):
    """Click's own message; exit status 2."""
    result = topo("--on", "moon")
    assert result.exit_code == 2
    assert "'auto', 'gpu', 'cpu'" in result.output
