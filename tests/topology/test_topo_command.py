import json
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from collbench.cli.topo import command
from collbench.errors import PlatformError
from collbench.platforms import gpu as platform
from collbench.topology import Topology
from tests.platforms.fake_cuda import Machine
from tests.topology.conftest import FakeGpu, FakeNvml, bus

NO_DRIVER = 9  # NVML_ERROR_DRIVER_NOT_LOADED


class CudaError(RuntimeError):
    """Stands for cupy's CUDARuntimeError."""


def topo(*arguments):
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


@pytest.fixture
def nvml(monkeypatch, dgx_h100):
    """Eight GPUs in the driver, and no CuPy."""
    monkeypatch.setitem(sys.modules, "pynvml", dgx_h100)
    monkeypatch.setitem(sys.modules, "collbench.platforms.gpu", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return dgx_h100


def cuda(monkeypatch, bus_ids, probe):
    """The GPU platform, as far as it is asked here; `bus_ids` are the GPUs that CUDA shows."""
    asked = SimpleNamespace(visible=lambda: (bus_ids, []), probe_peers=probe)
    monkeypatch.setitem(sys.modules, "collbench.platforms.gpu", asked)


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
    with pytest.raises(PlatformError, match="choose --on cpu"):
        topo("--on", "gpu")


def test_json_is_the_header_of_a_run_file(nvml):
    """What is printed can be read back."""
    assert Topology.from_json(json.loads(topo("--json", "--ranks", "2").output)).ranks == 2


def test_without_cupy_peer_access_is_unprobed(nvml):
    """The text names the package to install."""
    shown = " ".join(topo().output.split())
    assert "peer access unprobed (needs CuPy: pip install 'collbench[cuda12]')" in shown


def test_without_cupy_a_choice_of_gpus_is_not_silently_ignored(nvml, monkeypatch):
    """NVML shows GPUs that CUDA would not use."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert "CUDA_VISIBLE_DEVICES is not applied" in topo().stderr


def test_gpus_are_probed_in_the_order_of_cuda(nvml, monkeypatch):
    """Numbers in the probe's answer are CUDA's."""
    asked = []

    def probe(devices):
        asked.extend(devices)
        return {(0, 1): (True, ""), (1, 0): (False, "read back zeros")}

    cuda(monkeypatch, ["0000:2a:00.0", "0000:0a:00.0"], probe)
    shown = Topology.from_json(json.loads(topo("--json").output))
    assert asked == [0, 1]
    assert [gpu.bus_id for gpu in shown.gpus] == ["0000:2a:00.0", "0000:0a:00.0"]
    assert (shown.links[0].p2p, shown.links[0].reason) == ("no", "read back zeros")


@pytest.fixture
def machine(monkeypatch):
    """Two made-up GPUs, which the real platform finds by its own way."""
    made = Machine(2)
    monkeypatch.setattr(platform, "load_cupy", made.cupy)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([FakeGpu("Test GPU", bus(i)) for i in range(2)]))
    yield made
    made.stop()


def test_the_real_platform_lists_and_probes_the_gpus(machine):
    """What the command asks of it, it has."""
    shown = Topology.from_json(json.loads(topo("--on", "gpu", "--json").output))
    assert [gpu.bus_id for gpu in shown.gpus] == ["0000:00:00.0", "0000:01:00.0"]
    assert [link.p2p for link in shown.links] == ["yes"]


def test_a_probe_that_fails_is_the_reason(nvml, monkeypatch):
    """CUDA that does not start leaves the driver's facts, and says so."""

    def probe(devices):
        raise CudaError("cudaErrorSystemNotReady")

    cuda(monkeypatch, ["0000:2a:00.0", "0000:0a:00.0"], probe)
    assert "peer access unprobed (cudaErrorSystemNotReady)" in " ".join(topo().output.split())


def test_an_unknown_place_lists_the_choices(nvml):
    """Click's own message; exit status 2."""
    result = topo("--on", "moon")
    assert result.exit_code == 2
    assert "'auto', 'gpu', 'cpu'" in result.output
