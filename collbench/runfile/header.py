"""The header of a run file: what holds for the whole run."""

import os
import platform
import sys
from collections.abc import Collection, Mapping
from typing import Any, Self

from msgspec import field, structs

from collbench import __version__
from collbench.notebook import Shown
from collbench.records import Record
from collbench.topology.discovered import Topology
from collbench.topology.system import System
from collbench.units import counted

_FABRICS = ("UCX_", "UCC_", "FI_EFA_", "FI_CXI_", "FI_PROVIDER")
# Of MPI: transports, algorithms, memory, places of ranks.  Of the same families are addresses and keys of launchers'
# daemons (orte, ess, plm, oob, I_MPI_HYDRA), which change no time.
_PARTS = {
    "OMPI_MCA_": "accelerator bml btl coll hwloc mpool mtl opal_ osc pml rcache rmaps smsc topo",
    "PRTE_MCA_": "hwloc rmaps",
    "I_MPI_": "ADJUST ASYNC COLL EAGER FABRICS INTRANODE OFFLOAD OFI PIN SHM SPIN THREAD WAIT",
}
_MPI = tuple(name + part for name, parts in _PARTS.items() for part in parts.split())
_PREFIXES = ("NCCL_", "RCCL_", "CUDA_", "MPIR_CVAR_", *_FABRICS, *_MPI, "COLLBENCH_KERNELS", "COLLBENCH_NCCL")
"""Variables that change what is measured; all others stay out, since an environment holds secrets."""

ONE_RANK = "one rank alone: nothing crossed a link; start the test on several GPUs, or build it with MPI=1"
"""What there is to say of its rows."""

Changes = Mapping[str, str | None]
"""A change of the environment: variables by name, and their values; None where one shall not be set."""


class Environment(Shown, Record, frozen=True, kw_only=True):
    """Where a run was measured, with which versions, and with which variables that change the numbers."""

    host: str = ""
    system: str = ""
    versions: Mapping[str, str] = {}
    variables: Mapping[str, str] = {}


class TopologyPart(Shown, Topology, frozen=True, kw_only=True):
    """What connects the ranks, and what only logs of other tools and predictions say of it."""

    name: str = ""
    shared: bool = False  # whether ranks share a GPU
    nodes: int = 0  # 0: not known, as where the list of a foreign log is trimmed to so many of its ranks
    listed: int = 0
    uneven: tuple[int, ...] = ()  # ranks of each host of a foreign log, where they differ
    racks: int = 0  # as NVLinks join hosts, by a foreign log; 0: not known
    hosts: tuple[str, ...] = ()  # of a foreign log that names several
    copies: int = 0  # of a foreign test that ran so often side by side, each by itself; 0: it ran once
    model: bool = False  # whether the run is predicted
    system: System | None = None  # for which it is
    what_ifs: tuple[str, ...] = ()  # with these changes
    streamed_from: int = 0  # bytes from which on copies between CPU ranks go past the caches; 0: they do not
    curves: str = ""  # the origin of the communication times of a plan

    to_json = Record.to_json

    @property
    def copied(self) -> str:
        """A sentence on a log of a test that ran several times side by side; empty for any other run."""
        what = f"{self.copies} copies of the test on {counted(self.ranks, 'rank')} ran side by side"
        return f"{what}: nothing crossed between them; build it with MPI=1" if self.copies else ""

    @classmethod
    def of(cls, topology: Topology, nodes: int, streamed_from: int = 0) -> Self:
        """Return a discovered topology with its name; of CPUs on several nodes only the first is discovered."""
        name = topology.name
        if topology.sockets and nodes > 1:
            ranks, _, what = name.partition(" on ")
            name = f"{ranks} on {nodes} nodes, the first with {what}"
        fields = structs.asdict(topology)
        return cls(name=name, shared=topology.shared, nodes=nodes, streamed_from=streamed_from, **fields)


class SweepPart(Shown, Record, frozen=True, kw_only=True):
    """The sweep that was requested, by names; of an imported run, what is known of it."""

    collectives: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()
    redops: tuple[str, ...] = ()
    ranks: int = 0
    implementations: tuple[str, ...] = ()
    root: int = 0
    in_place: bool = False
    both_places: bool = False
    spin: str = ""
    bind: str = ""
    starts: int = 1  # how often the ranks were started
    unalign: int = 0  # elements by which every buffer is misaligned
    sampling: Mapping[str, Any] = {}
    steps: tuple[Mapping[str, Any] | None, ...] = ()
    jobs: tuple[Mapping[str, Any] | None, ...] = ()
    inits: tuple[Mapping[str, Any] | None, ...] = ()
    random_sums: tuple[Mapping[str, Any] | None, ...] = ()
    scans: tuple[Mapping[str, Any] | None, ...] = ()
    pairs: tuple[Mapping[str, Any] | None, ...] = ()
    asked: Mapping[str, Any] = field(default_factory=dict, name="requested")  # of which range the sizes were made


class ForeignTest(Shown, Record, frozen=True, kw_only=True):
    """A test that another tool carried out, and what an export needs to write it as it was."""

    format: str = ""
    tool: str = ""
    version: str = ""
    file: str = ""  # `gpu05.log`, of several `gpu05.log and 2 more`
    complete: bool = True  # whether its end was there
    sweep: Mapping[str, Any] = {}  # iterations and the like
    layout: Mapping[str, Any] = {}  # of the format's own
    remarks: tuple[str, ...] = ()  # what a user must know of it


class ImportedPart(Shown, Record, frozen=True, kw_only=True):
    """Who printed the numbers of an imported run."""

    tool: str = ""
    version: str = ""
    file: str = ""  # `gpu05.log`, of several `gpu05.log and 2 more`
    complete: bool = True  # whether the end of every test was there
    left_out: tuple[str, ...] = ()
    tests: tuple[ForeignTest, ...] = ()


class Interleaved(Shown, Record, frozen=True, kw_only=True):
    """Which arm this run is of two settings that were measured in turn."""

    id: str = ""  # the same for both arms
    setting: str = ""  # empty for the environment as it is
    cores: tuple[int, ...] = ()  # of each rank


class Header(Shown, Record, frozen=True, kw_only=True):
    """What holds for the whole run."""

    collbench: str = ""  # the version that wrote it
    command: tuple[str, ...] = ()
    started: str = ""  # ISO 8601
    resumed: tuple[str, ...] = ()  # when what was missing was measured, likewise
    processes: int = 0  # that an outside launcher started, each a rank; 0: the command started the ranks
    environment: Environment = Environment()
    topology: TopologyPart = TopologyPart()
    sweep: SweepPart = SweepPart()
    imported: ImportedPart = ImportedPart()
    interleaved: Interleaved = Interleaved()


def changed(environment: Mapping[str, str], changes: Changes) -> dict[str, str]:
    """Return the environment with these changes."""
    return {name: value for name, value in {**environment, **changes}.items() if value is not None}


def variables(environment: Mapping[str, str] = os.environ, named: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that matter, of the process that measures: a platform may have set some itself."""
    # What the user named on the command line is no secret.
    return {name: value for name, value in sorted(environment.items()) if name.startswith(_PREFIXES) or name in named}


def environment_of(versions: Mapping[str, str], chosen: Mapping[str, str]) -> Environment:
    """Return host, versions and variables; versions and variables are those of the ranks."""
    return Environment(
        host=platform.node(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        versions={"collbench": __version__, "python": sys.version.split()[0], **versions},
        variables=dict(chosen),
    )
