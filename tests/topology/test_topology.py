import json
from dataclasses import replace

import pytest

from collbench.errors import RunFileError
from collbench.topology.devices import (
    Cache,
    DriverInfo,
    FabricInfo,
    Gpu,
    Host,
    Kind,
    Link,
    NumaNode,
    NvLink,
    Pcie,
    Socket,
)
from collbench.topology.topology import Topology

H100 = Gpu(
    "NVIDIA H100 80GB HBM3",
    "0000:0a:00.0",
    pcie=Pcie(1, 16, 5, 16),
    nvlink=NvLink(4, 18, 26.562e9),
    fabric=FabricInfo("completed", "00", 1),
)
TWO_GPUS = Topology(
    "gpu",
    2,
    gpus=(H100, H100),
    links=(Link(0, 1, Kind.NVSWITCH, nvlink=NvLink(4, 18), reason="the driver claims it"),),
    driver=DriverInfo("570.86.15", "12.8"),
)
ONE_SOCKET = Topology(
    "cpu",
    2,
    sockets=(Socket("AMD EPYC", 2, 2),),
    host=Host((0, 1), 1.5, (Cache("L2", 2**20, 2, 1),), (NumaNode(0, (0, 1), 2**30),), 2**30, 2**26),
)


@pytest.mark.parametrize("topology", [TWO_GPUS, ONE_SOCKET])
def test_a_run_file_brings_back_the_topology(topology):
    """Nothing is lost on the way through JSON, and nothing changes: a live header need not take it."""
    record = topology.to_json()
    assert json.loads(json.dumps(record)) == record
    assert Topology.from_json(record) == topology


def test_keys_of_a_later_version_are_ignored():
    """A header that says more than this version knows can still be read."""
    record = TWO_GPUS.to_json() | {"nodes": 2}
    record["gpus"][0]["colour"] = "green"
    assert Topology.from_json(record) == TWO_GPUS


@pytest.mark.parametrize("record", [{}, {"platform": "cpu", "ranks": 2, "sockets": 3}])
def test_a_damaged_topology_is_named_as_such(record):
    """The reader of a broken header sees one line, not a traceback."""
    with pytest.raises(RunFileError, match="the header's topology cannot be read"):
        Topology.from_json(record)


def test_json_carries_what_plots_need():
    """Readers without this module find the name, and whether ranks share GPUs."""
    record = replace(TWO_GPUS, ranks=4).to_json()
    assert record["name"] == "4 ranks sharing 2 x NVIDIA H100 80GB HBM3, NVSwitch"
    assert record["shared"] is True


@pytest.mark.parametrize(
    ("topology", "name"),
    [
        (TWO_GPUS, "2 x NVIDIA H100 80GB HBM3, NVSwitch"),
        (Topology("gpu", 4, gpus=(Gpu("NVIDIA H200"),)), "4 ranks sharing 1 x NVIDIA H200"),
        (Topology("gpu", 1, gpus=(Gpu("NVIDIA H200"),)), "1 x NVIDIA H200"),
        (ONE_SOCKET, "2 ranks on 1 x AMD EPYC, 2 cores"),
        (Topology("cpu", 1, sockets=(Socket("arm64", threads=8),)), "1 rank on 1 x arm64, 8 CPUs"),
    ],
)
def test_the_name_says_what_a_plot_must_show(topology, name):
    """Ranks where they differ from devices, devices by count, and what joins them."""
    assert topology.name == name


def test_ranks_go_round_the_devices():
    """With two GPUs, ranks 0 and 2 share one, and 1 and 2 are joined as the GPUs are."""
    topology = replace(TWO_GPUS, ranks=4)
    assert topology.link(0, 2).kind == Kind.SAME_GPU
    assert topology.link(2, 1) == TWO_GPUS.links[0]


def test_ranks_on_one_socket_share_memory():
    """CPU ranks always reach each other."""
    assert ONE_SOCKET.link(0, 1).kind == Kind.SHARED_MEMORY


def test_a_probe_that_worked_in_both_directions_says_yes():
    """What was seen to work takes the place of what the driver claims."""
    (link,) = TWO_GPUS.probed({(0, 1): (True, "loads and copies"), (1, 0): (True, "loads and copies")}).links
    assert (link.p2p, link.reason) == ("yes", "loads and copies")


def test_one_direction_that_fails_is_enough_for_no():
    """A pair counts only if each can use the other's memory."""
    (link,) = TWO_GPUS.probed({(0, 1): (True, ""), (1, 0): (False, "read back zeros")}).links
    assert (link.p2p, link.reason) == ("no", "read back zeros")


def test_pairs_without_a_probe_say_why():
    """`unprobed` comes with what to do about it."""
    (link,) = TWO_GPUS.probed({}, otherwise="needs CuPy").links
    assert (link.p2p, link.reason) == ("unprobed", "needs CuPy")


def test_a_refusal_by_the_driver_outlives_a_missing_probe():
    """That a probe could not run does not make a known no uncertain."""
    refused = replace(TWO_GPUS, links=(replace(TWO_GPUS.links[0], p2p="no", reason="the driver says: no"),))
    assert refused.probed({}, otherwise="needs CuPy") == refused


def test_a_run_on_several_machines_counts_them():
    """Nobody looked at the others, so the name says whose sockets these are."""
    two = Topology("cpu", 4, sockets=(Socket("Intel Xeon", cores=2),))
    assert two.on_nodes(1) == two.to_json() | {"nodes": 1}
    assert two.on_nodes(2)["name"] == "4 ranks on 2 nodes, the first with 1 x Intel Xeon, 2 cores"
