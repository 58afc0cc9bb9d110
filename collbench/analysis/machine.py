"""Which described system a run was measured on: as the user names it, or as it was discovered."""

import re
from dataclasses import replace

from collbench.errors import CollbenchError, UsageError
from collbench.platforms import platforms
from collbench.runfile.file import Run
from collbench.topology import files
from collbench.topology.as_system import from_topology
from collbench.topology.caveats import caveats
from collbench.topology.system import System
from collbench.topology.topology import Topology


def machine(run: Run, name: str | None) -> System:
    """The system; UsageError, saying why, if the run file does not tell."""
    if name:
        return as_it_ran(files.load(name), run)
    topology = discovered(run)
    if not topology or not topology.devices:
        raise UsageError("the run file does not say what the machine is; name it with --on SYSTEM or --on FILE.toml")
    return as_it_ran(from_topology(topology), run)


def as_it_ran(system: System, run: Run) -> System:
    """With the run's own release of NCCL, and one process for several GPUs (`-g` of nccl-tests), where that is open.

    A description that says other than what is taken by default is believed.
    """
    version = str(run.header.environment.versions.get("nccl", ""))
    if system.nccl == System.nccl and re.fullmatch(r"\d+\.\d+(\.\d+)*", version):
        system = replace(system, nccl=version)
    driven = [test.sweep.get("gpus") for test in run.header.imported.tests]
    several = any(isinstance(gpus, int) and gpus > 1 for gpus in driven)
    return replace(system, launch="single-process") if several and system.launch == System.launch else system


def discovered(run: Run) -> Topology | None:
    """The topology in a run's header; None where a foreign log has none, or not enough of it."""
    said = run.header.topology
    if not said.platform or not said.ranks:
        return None
    try:
        return Topology.from_json(said.to_json())
    except CollbenchError:
        return None


def sized(system: System, ranks: int, nodes: int | None = None) -> System:
    """So many ranks of it: spread over `nodes`, or on as few as they fill; UsageError if it has no such part."""
    if nodes is None:
        return (system.of(-(-ranks // system.gpus)) if ranks > system.ranks else system).part(ranks)
    if ranks % nodes or ranks // nodes > system.gpus:
        even = [ranks // own for own in range(min(ranks, system.gpus), 0, -1) if ranks % own == 0]
        raise UsageError(
            f"{ranks} ranks cannot be spread evenly over {nodes} nodes of {system.gpus} GPUs; "
            f"choose from: {', '.join(map(str, even))}"
        )
    return system.part(ranks // nodes).of(nodes)


def remarks(run: Run) -> tuple[str, ...]:
    """What the header says that spoils numbers."""
    topology = discovered(run)
    said = caveats(topology) if topology else ()
    kind = platforms().get(run.header.topology.platform)
    if run.header.sweep.spin == "busy" and kind and kind.spins:
        said += ("--spin busy: waiting ranks keep their cores, which the awaited ones may need",)
    return said
