"""Which system a run was measured on: as the user names it, or as it was discovered."""

import re
from dataclasses import replace

from collbench.errors import CollbenchError, UsageError
from collbench.platforms import platforms
from collbench.runfile.store import Run
from collbench.topology import files
from collbench.topology.discovered import Topology, caveats
from collbench.topology.system import System, as_system


def machine(run: Run, name: str | None) -> System:
    """Return the system of a run, or the one of that name; UsageError, saying why, if the run file does not say."""
    if name:
        return as_it_ran(files.load(name), run)
    topology = discovered(run)
    if not topology or not topology.devices:
        raise UsageError("the run file does not say what the machine is; name it with --on SYSTEM or --on FILE.toml")
    return as_it_ran(as_system(topology), run)


def as_it_ran(system: System, run: Run) -> System:
    """Return the system with the run's release of NCCL, and one process for several GPUs (`-g` of nccl-tests).

    A description that says other than the default is believed.
    """
    version = str(run.header.environment.versions.get("nccl", ""))
    if system.nccl == System.nccl and re.fullmatch(r"\d+\.\d+(\.\d+)*", version):
        system = replace(system, nccl=version)
    driven = [test.sweep.get("gpus") for test in run.header.imported.tests]
    several = any(isinstance(gpus, int) and gpus > 1 for gpus in driven)
    return replace(system, launch="single-process") if several and system.launch == System.launch else system


def discovered(run: Run) -> Topology | None:
    """Return the topology in a run's header; None where a foreign log has none, or not enough of it."""
    record = run.header.topology
    if not record.platform or not record.ranks:
        return None
    try:
        return Topology.from_json(record.to_json())
    except CollbenchError:
        return None


def sized(system: System, ranks: int, nodes: int | None = None) -> System:
    """Return so many ranks of a system, over `nodes` or on as few as they fill; UsageError if it has no such part."""
    if nodes is None:
        return (system.of(-(-ranks // system.gpus)) if ranks > system.ranks else system).part(ranks)
    if ranks % nodes or ranks // nodes > system.gpus:
        even = [ranks // gpus for gpus in range(min(ranks, system.gpus), 0, -1) if ranks % gpus == 0]
        raise UsageError(
            f"{ranks} ranks cannot be spread evenly over {nodes} nodes of {system.gpus} GPUs; "
            f"choose from: {', '.join(map(str, even))}"
        )
    return system.part(ranks // nodes).of(nodes)


def remarks(run: Run) -> tuple[str, ...]:
    """Return sentences on what spoils the numbers of a run, by its header."""
    topology = discovered(run)
    found = caveats(topology) if topology else ()
    kind = platforms().get(run.header.topology.platform)
    if run.header.sweep.spin == "busy" and kind and kind.spins:
        found += ("--spin busy: waiting ranks keep their cores, which the awaited ones may need",)
    return found
