"""What connects the ranks: discovered on this machine, read back from a run file's header, or described in a file.

links.py     how one pair is connected, and the rates of NVLink and PCIe by generation
devices.py   what ranks live on: GPUs, CPU sockets, and the machine around them
model.py     Topology: all of it, to and from JSON
cpu.py       discovery from /sys and /proc
gpu.py       discovery through the NVIDIA driver
nodes.py     several nodes as one
nvml.py      the driver's library: opened, asked, its numbers named
describe.py  text for `collbench topo`

Facts are stored, in SI units; rates, names and caveats are derived from them.

Systems that somebody describes instead:

system.py         System: GPUs, nodes, network; parts of it
architectures.py  what GPUs of an architecture bring along
schema.py         what a TOML file may say
presets.py        files to systems, those of presets/ by name
discovered.py     a Topology as a System
diagram.py        text for `collbench topo PRESET`
"""

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

__all__ = [
    "Cache",
    "DriverInfo",
    "FabricInfo",
    "Gpu",
    "Host",
    "Kind",
    "Link",
    "NumaNode",
    "NvLink",
    "Pcie",
    "Socket",
    "Topology",
]
