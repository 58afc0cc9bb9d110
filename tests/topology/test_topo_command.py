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


def flat(text):
    return " ".join(text.split())


def shown(*arguments):
    return Topology.from_json(json.loads(topo("--json", *arguments).output))


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


def test_gpus_come_before_the_cpu_unless_there_are_none_or_it_is_asked_for(nvml):
    assert topo().output.startswith("8 x NVIDIA H100 80GB HBM3, NVSwitch\n")
    assert topo("--on", "cpu", "--ranks", "3").output.startswith("3 ranks on ")
    assert shown("--ranks", "2").ranks == 2
    moon = topo("--on", "moon")
    assert moon.exit_code == 2
    assert "'auto', 'gpu', 'cpu'" in moon.output
    nvml.init_error = NO_DRIVER
    assert " on " in topo().stdout.splitlines()[0]
    message = r"^no GPU can be used: NVML .* \(Driver Not Loaded\).*, or choose --on cpu$"
    with pytest.raises(PlatformError, match=message):
        topo("--on", "gpu")


def test_the_machine_is_drawn_as_the_system_that_it_is(nvml, tmp_path):
    topo("-o", str(tmp_path / "here.svg"))
    assert "8 x NVIDIA H100 80GB HBM3, NVSwitch" in (tmp_path / "here.svg").read_text()


def test_without_nvml_gpus_are_named_as_cuda_has_them(nvml, cuda, monkeypatch):
    nvml.init_error = NO_LIBRARY
    cuda(devices=2)
    monkeypatch.setattr(probe, "available", lambda: True)
    words = flat(topo("--ranks", "4").stdout)
    assert words.startswith("4 ranks sharing 2 x Test GPU what joins them is not known same gpu ranks on one device")
    assert "GPU 1 0000:01:00.0" in words
    reason = "NVML cannot be used (NVML Shared Library Not Found)"
    assert f"note: links and slots of the GPUs are not known: {reason}" in words
    assert [(gpu.bus_id, gpu.uuid) for gpu in shown("--ranks", "1").gpus] == [("0000:00:00.0", "01" * 16)]
    for doubt, answer in (("available", False), ("missing", "CuPy")):
        with monkeypatch.context() as patch:
            patch.setattr(probe, doubt, lambda answer=answer: answer)
            message = r"^no GPU can be used: NVML cannot be used .*, or choose --on cpu$"
            with pytest.raises(PlatformError, match=message):
                topo("--on", "gpu")


def test_without_cupy_peer_access_is_unprobed_and_a_choice_of_gpus_is_not_silently_ignored(nvml, monkeypatch):
    words = "peer access unprobed (needs CuPy: pip install 'collbench[cuda12]' (or cuda13))"
    assert words in flat(topo().output)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert "CUDA_VISIBLE_DEVICES is not applied" in topo().stderr


def test_gpus_are_probed_in_the_order_of_cuda(cuda, monkeypatch):
    machine = cuda(devices=2, buses={0: 0x2A, 1: 0x0A})
    assert shown().links[0].p2p == "yes"
    assert not machine.blocks, "the probe's buffers are given back"
    cuda(devices=2, buses={0: 0x2A, 1: 0x0A}, losing_copies={(1, 0)})
    found = shown()
    assert tuple(gpu.bus_id for gpu in found.gpus) == TWO
    assert (found.links[0].p2p, found.links[0].reason) == ("no", "a copy gave wrong data")
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([FakeGpu("Test GPU", bus(i)) for i in range(2)]))
    cuda(devices=2)
    found = shown("--on", "gpu")
    assert [gpu.bus_id for gpu in found.gpus] == ["0000:00:00.0", "0000:01:00.0"]
    assert [link.p2p for link in found.links] == ["yes"]


def test_cuda_that_shows_no_gpu_or_another_one_is_the_reason(cuda, monkeypatch):
    machine = cuda(devices=2, buses={0: 0x99, 1: 0x0A})
    words = "peer access unprobed (CUDA uses the GPU at 0000:99:00.0, which NVML does not show"
    assert words in flat(topo().stdout)
    assert not machine.streams, "nothing was probed"
    cuda(devices=0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    result = topo()
    assert result.stdout.startswith("8 x NVIDIA H100 80GB HBM3")
    assert "peer access unprobed (no GPU found (cudaErrorNoDevice: " in flat(result.stdout)
    assert "CUDA_VISIBLE_DEVICES is not applied (no GPU found" in result.stderr
