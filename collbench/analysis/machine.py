"""Which system a run was measured on: as the user names it, or as it was discovered."""

import re
from dataclasses import replace

from collbench.errors import CollbenchError, UsageError
from collbench.platforms import platforms
from collbench.runfile.store import Run
from collbench.topology import files
from collbench.topology.discovered import Topology, caveats
from collbench.topology.system import System, as_system, launched_in_graph


def machine(run: Run, name: str | None) -> System:
    """Return the system of a run, or the one of that name; UsageError, saying why, if the run file does not say."""
    if name:
        return as_it_ran(files.load(name), run)
    topology = discovered(run)
    if not topology or not topology.devices:
        raise UsageError(f"the run file does not say what the machine is; {_how_to_name_it(run)}")
    return as_it_ran(as_system(topology), run)


def _how_to_name_it(run: Run) -> str:
    """Return what to give after --on: presets with the GPUs that the header of a foreign log names, if it names any."""
    topology = run.header.topology
    named = _NAMED.fullmatch(topology.name)
    nodes = int(named["nodes"] or 1) if named else 1
    found = matching(named["gpu"], -(-topology.ranks // nodes), nodes > 1) if named and nodes else []
    if not named or not found:
        return "name it with --on SYSTEM (see `collbench list`) or --on FILE.toml"
    others = f", or with the same GPUs: {', '.join(found[1:])}" if found[1:] else ""
    spread = f" --nodes {nodes}" if nodes > 1 else ""
    return f"for {named[0]} name it with --on {found[0]}{spread}{others}"


_NAMED = re.compile(r"\d+ x (?P<gpu>[\w /-]+?)(?: on (?P<nodes>\d{1,6}) nodes)?")  # as formats/imported.py writes it
_FORM, _MEMORY = re.compile(r"SXM\d?|PCIE|NVL"), re.compile(r"\d+GB")


def matching(gpu: str, of_node: int, network: bool) -> list[str]:
    """Return the presets of such GPUs, with so many in a node at least; those with just so many first."""
    systems = [(name, files.load(name)) for name in files.names()]
    found = [
        (system.gpus != of_node, name)
        for name, system in systems
        if _same(gpu, system.gpu) and system.gpus >= of_node and (system.nics or not network)
    ]
    return [name for _, name in sorted(found)]


def _same(gpu: str, preset: str) -> bool:
    """Return whether a driver's name of a GPU, NVIDIA A100-SXM4-40GB, may be that of a preset, A100 SXM4."""
    there, named = (set(text.upper().replace("-", " ").split()) for text in (gpu, preset))
    for variant in (_FORM, _MEMORY):
        is_there, is_preset = ({word for word in words if variant.fullmatch(word)} for words in (there, named))
        named -= is_preset
        unnamed = not is_there and not is_preset & {"PCIE", "NVL"}  # which drivers name, other than SXM
        if is_preset and is_there != is_preset and not unnamed:
            return False
    return bool(named) and named <= there


def as_it_ran(system: System, run: Run) -> System:
    """Return the system with the run's release of NCCL and launches: in graphs, or of one process for several GPUs.

    The latter is `-g` of nccl-tests.  A description that says other than the default is believed.
    """
    version = str(run.header.environment.versions.get("nccl", ""))
    if system.nccl == System.nccl and re.fullmatch(r"\d+\.\d+(\.\d+)*", version):
        system = replace(system, nccl=version)
    if system.launch != System.launch:
        return system
    if run.header.topology.platform == "gpu" and run.header.sweep.sampling.get("graph"):
        return launched_in_graph(system)
    driven = [test.sweep.get("gpus") for test in run.header.imported.tests]
    several = any(isinstance(gpus, int) and gpus > 1 for gpus in driven)
    return replace(system, launch="single-process") if several else system


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


def stated_nodes(system: System | None, run: Run) -> int | None:
    """Return the nodes that a foreign log names, where its ranks may lie so on the system; else None."""
    nodes, ranks = run.header.topology.rest.get("nodes"), run.header.topology.ranks
    if not run.header.imported.tests or type(nodes) is not int or nodes < 2 or not system or not system.nics:
        return None
    return nodes if ranks % nodes == 0 and ranks // nodes <= system.gpus else None


def remarks(run: Run) -> tuple[str, ...]:
    """Return sentences on what spoils the numbers of a run, by its header."""
    topology = discovered(run)
    found = caveats(topology) if topology else ()
    kind = platforms().get(run.header.topology.platform)
    if run.header.sweep.spin == "busy" and kind and kind.spins:
        found += ("--spin busy: waiting ranks keep their cores, which the awaited ones may need",)
    return found
