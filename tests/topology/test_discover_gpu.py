import re
import sys
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from collbench.errors import PlatformError
from collbench.topology import discover_gpu as gpu
from collbench.topology import nvml
from collbench.topology.devices import DriverInfo, FabricInfo, Kind, NvLink, Pcie
from collbench.topology.discover_gpu import discover, normalize
from tests.topology import fake_nvml


def constants(prefix):
    """NVML's numbers by name, without the prefix."""
    return {name.removeprefix(prefix): getattr(pynvml, name) for name in dir(pynvml) if name.startswith(prefix)}


def test_nvswitch_joins_every_pair(dgx_h100):
    """All 28 pairs of 8 GPUs, over all 18 links, at the data sheet's rate."""
    topology = discover(nvml=dgx_h100)
    assert len(topology.links) == 28
    assert {(link.kind, link.nvlink.count, link.rate) for link in topology.links} == {(Kind.NVSWITCH, 18, 450e9)}
    assert topology.name == "8 x NVIDIA H100 80GB HBM3, NVSwitch"


def test_gpu_facts(dgx_h100):
    """What NVML says, in SI units and CUDA's spelling."""
    first = discover(nvml=dgx_h100).gpus[0]
    assert (first.bus_id, first.architecture, first.capability) == ("0000:0a:00.0", "Hopper", "9.0")
    assert (first.memory, first.numa, first.mig) == (80 * 2**30, 0, False)
    assert first.pcie == Pcie(1, 16, 5, 16)
    assert first.nvlink == NvLink(4, 18, 26.562e9)
    assert first.switch_links == 18
    assert first.fabric == FabricInfo("completed", "00" * 16, 0)


def test_driver_and_cuda_version(h200):
    """CUDA's number 12080 is version 12.8."""
    assert discover(nvml=h200).driver == DriverInfo("570.86.15", "12.8")


def test_direct_links_join_only_the_gpus_at_their_ends(pairs):
    """Two bridges: NVLink inside a pair, PCIe between."""
    links = {(link.a, link.b): link for link in discover(nvml=pairs).links}
    assert {pair for pair, link in links.items() if link.kind == Kind.NVLINK} == {(0, 1), (2, 3)}
    assert links[0, 1].nvlink == NvLink(3, 4, 14.062e9)
    assert links[0, 1].rate == pytest.approx(56.248e9)
    assert links[0, 2].kind == Kind.PCIE
    assert links[0, 2].path == "between NUMA nodes"


def test_pcie_pairs_have_the_slower_end(pcie_box):
    """A pair is as fast as the GPU with half its lanes."""
    (link,) = discover(nvml=pcie_box).links
    assert (link.kind, link.path) == (Kind.PCIE, "through one CPU host bridge")
    assert link.pcie.width == 8


def test_a_refusal_by_the_driver_is_a_no(pcie_box):
    """One direction or kind of access that the driver refuses is enough, and it says why."""
    (link,) = discover(nvml=pcie_box).links
    assert (link.p2p, link.reason) == ("no", "the driver says: chipset not supported")


def test_a_claim_by_the_driver_is_no_proof(dgx_h100):
    """Only a probe makes a yes."""
    assert {(link.p2p, link.reason) for link in discover(nvml=dgx_h100).links} == {("unprobed", "the driver claims it")}


def test_ranks_share_a_single_gpu(h200):
    """More ranks than GPUs: they share, and there is no link."""
    topology = discover(4, nvml=h200)
    assert topology.name == "4 ranks sharing 1 x NVIDIA H200"
    assert topology.links == ()
    assert topology.link(0, 3).kind == Kind.SAME_GPU


def test_fewer_ranks_use_the_first_gpus(dgx_h100):
    """GPUs without a rank are not part of the topology."""
    assert len(discover(2, nvml=dgx_h100).gpus) == 2


def test_gpus_come_in_the_order_of_cuda(dgx_h100):
    """CUDA's order may differ from NVML's, and may leave GPUs out."""
    wanted = ("0000:2a:00.0", "0000:0a:00.0")
    assert tuple(device.bus_id for device in discover(bus_ids=wanted, nvml=dgx_h100).gpus) == wanted


A, B, C = ("0011223344556677889900aabbccdd" + end for end in ("0a", "0b", "0c"))


@pytest.fixture
def mig():
    """A GPU in MIG mode with two slices, one whose index is empty between them, and a GPU that is used whole."""
    first, second = (
        fake_nvml.Slice(f"NVIDIA H200 MIG 1g.{n}gb", f"MIG-{uuid}", n * 2**30) for n, uuid in ((18, A), (35, B))
    )
    whole = fake_nvml.FakeGpu("NVIDIA H200", fake_nvml.bus(1), ((fake_nvml.SWITCH, "x"),) * 18, memory=141 * 2**30)
    return fake_nvml.FakeNvml(
        [replace(whole, mig=1, slices=(first, None, second)), replace(whole, bus_id=fake_nvml.bus(2))]
    )


def test_a_mig_slice_is_itself_and_not_its_gpu(mig):
    """Name, UUID and memory are the slice's; it has no NVLink; a UUID that is cut short is known all the same."""
    (found,) = discover(bus_ids=["0000:01:00.0"], uuids=[B], nvml=mig).gpus
    assert (found.name, found.uuid, found.memory) == ("NVIDIA H200 MIG 1g.35gb", f"MIG-{B}", 35 * 2**30)
    assert (found.slice, found.mig, found.nvlink, found.capability) == (True, True, None, "9.0")
    assert discover(bus_ids=["0000:01:00.0"], uuids=[A[:4]], nvml=mig).gpus[0].uuid == f"MIG-{A}"


def test_mig_slices_have_no_peer_access(mig):
    """Neither on one GPU nor to another one, whatever the driver says of the GPUs."""
    mig.p2p = {0: 0, 1: 0, 2: 0}
    found = discover(bus_ids=["0000:01:00.0"] * 2 + ["0000:02:00.0"], uuids=[A, B, "ff"], nvml=mig)
    assert [link.kind for link in found.links] == [Kind.SAME_GPU, Kind.PCIE, Kind.PCIE]
    assert {(link.p2p, link.reason) for link in found.links} == {("no", "MIG slices reach no other GPU's memory")}
    assert not found.shared
    assert found.name == "1 x NVIDIA H200 MIG 1g.18gb + 1 x NVIDIA H200 MIG 1g.35gb + 1 x NVIDIA H200, same gpu + PCIe"


def test_a_slice_that_nvml_hides_is_called_one(mig):
    """As in a container that was given nothing but the slice; its GPU's memory is not its own."""
    (found,) = discover(bus_ids=["0000:01:00.0"], uuids=[C], nvml=mig).gpus
    assert (found.name, found.uuid, found.memory) == ("NVIDIA H200 MIG slice", f"MIG-{C}", None)


@pytest.mark.parametrize("uuid", ["", "0000000001000000"])
def test_a_gpu_in_mig_mode_that_cuda_uses_whole_is_no_slice(mig, uuid):
    """Where CUDA names the GPU itself, or nothing."""
    mig.nvmlDeviceGetUUID = lambda gpu: "GPU-00000000-0100-0000"
    (found,) = discover(bus_ids=["0000:01:00.0"], uuids=[uuid], nvml=mig).gpus
    assert (found.name, found.slice, found.mig) == ("NVIDIA H200", False, True)


def test_a_gpu_that_nvml_does_not_show_is_named(h200):
    """The message has both sides of the contradiction."""
    with pytest.raises(PlatformError, match=r"0000:99:00\.0, which NVML does not show \(it shows 0000:0a:00\.0\)"):
        discover(bus_ids=["0000:99:00.0"], nvml=h200)


@pytest.mark.parametrize("spelling", ["0000:0a:00.0", "00000000:0A:00.0", " 0:a:0.0 "])
def test_one_address_has_one_spelling(spelling):
    """CUDA, NVML and people write PCI addresses differently."""
    assert normalize(spelling) == "0000:0a:00.0"


def test_what_is_not_supported_is_none(dgx_h100):
    """A GPU that answers nothing but its name and address is still shown."""
    bare = {"links": (), "pcie": None, "memory": None, "architecture": None, "capability": None}
    bare |= {"mig": None, "fabric": None, "numa": None}
    dgx_h100.gpus = [replace(device, **bare) for device in dgx_h100.gpus[:2]]
    dgx_h100.level, dgx_h100.p2p = None, {}
    topology = discover(nvml=dgx_h100)
    assert topology.gpus[0] == gpu.Gpu(topology.gpus[0].name, "0000:0a:00.0", "GPU-00000000:0A:00.0", pcie=Pcie())
    assert (topology.links[0].kind, topology.links[0].rate) == (Kind.PCIE, None)
    assert (topology.links[0].p2p, topology.links[0].reason) == ("unprobed", "")


def test_cliques_of_a_fabric_are_not_joined(dgx_h100):
    """GPUs on one switch whose fabric keeps them apart have only PCIe."""
    first, second = dgx_h100.gpus[:2]
    dgx_h100.gpus = [first, replace(second, fabric=(3, 1))]
    assert discover(nvml=dgx_h100).links[0].kind == Kind.PCIE


def test_the_driver_knows_nvlink_that_a_virtual_machine_hides(pairs):
    """Where no far end can be named, NVLink without a count is what is known."""
    pairs.gpus = [replace(device, links=((None, "ffff:ff:ff.f"),) * 4) for device in pairs.gpus[:2]]
    pairs.p2p[2] = pynvml.NVML_P2P_STATUS_OK
    (link,) = discover(nvml=pairs).links
    assert (link.kind, link.nvlink.count, link.rate) == (Kind.NVLINK, None, None)


@pytest.mark.parametrize(("state", "word"), [(1, "not started"), (2, "in progress"), (3, "completed"), (0, None)])
def test_fabric_state(h200, state, word):
    """State 0 is how GPUs without a fabric answer."""
    h200.gpus = [replace(h200.gpus[0], fabric=(state, 0))]
    fabric = discover(nvml=h200).gpus[0].fabric
    assert (fabric and fabric.state) == word


def test_no_gpu_is_one_line_with_the_way_out(h200):
    """A driver without GPUs is no crash."""
    h200.gpus = []
    with pytest.raises(PlatformError, match="the NVIDIA driver shows no GPU: check `nvidia-smi`"):
        discover(nvml=h200)


def test_no_driver_is_one_line_with_the_way_out(h200):
    """What NVML raises is said once, in words."""
    h200.init_error = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    with pytest.raises(PlatformError, match=r"NVML cannot be used \(Driver Not Loaded\): check `nvidia-smi`"):
        discover(nvml=h200)


def test_a_container_without_nvml_is_told_how_to_get_it(h200):
    """NVML is of the driver, and whoever starts the container says which of its parts are in there."""
    h200.init_error = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    with pytest.raises(PlatformError, match=r"Not Found.: a container needs NVIDIA_DRIVER_CAPABILITIES=compute"):
        discover(nvml=h200)


def test_without_nvidia_ml_py_the_message_says_how_to_get_it(monkeypatch):
    """The package is optional, and named with its pip command."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(PlatformError, match="pip install nvidia-ml-py"):
        discover()


def test_nvml_is_closed_again(h200):
    """Also when discovery fails half-way."""
    with pytest.raises(PlatformError):
        discover(bus_ids=["0000:99:00.0"], nvml=h200)
    assert h200.opened == 0


def test_every_function_and_constant_exists_in_nvidia_ml_py():
    """A name that this version of pynvml lacks would silently be None."""
    source = Path(gpu.__file__).read_text()
    names = set(re.findall(r"nvml\w+|NVML_\w+|c_nvml\w+", source)) - {"nvmlReturn"}
    assert [name for name in sorted(names) if not hasattr(pynvml, name)] == []


@pytest.mark.parametrize(
    ("table", "prefix"),
    [
        (nvml.PATHS, "NVML_TOPOLOGY_"),
        (nvml.REFUSALS, "NVML_P2P_STATUS_"),
        (nvml.FABRIC_STATES, "NVML_GPU_FABRIC_STATE_"),
    ],
)
def test_tables_hold_numbers_of_nvml(table, prefix):
    """A number that NVML never answers would be a slip of the pen."""
    assert set(table) <= set(constants(prefix).values())


def test_generations_are_those_in_the_name_of_each_version():
    """NVML_NVLINK_VERSION_3_1 is generation 3."""
    versions = constants("NVML_NVLINK_VERSION_")
    generations = {number: int(name[0]) for name, number in versions.items() if name != "INVALID"}
    assert generations.items() >= nvml.NVLINK_GENERATIONS.items()


def test_architectures_are_those_in_the_name_of_each_number():
    """Every name in the table is NVML's own."""
    known = constants("NVML_DEVICE_ARCH_")
    assert {name: known[name.upper()] for name in nvml.GENERATIONS.values()} == {
        name: number for number, name in nvml.GENERATIONS.items()
    }
