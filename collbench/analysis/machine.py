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
    """Return the system of a run, or the one of that name; UsageError, saying why, if none is known to be like it."""
    named = files.load(name) if name else None
    topology = discovered(run)
    if run.header.topology.shared:
        why = "ranks that share a GPU have no link between them, so no system says what they should take"
        raise UsageError(f"several ranks on one GPU: {why}; hold them against a good run: check --reference RUN")
    if named and not (topology and topology.sliced):
        return as_it_ran(named, run)
    if not topology or not topology.devices:
        raise UsageError(f"the run file does not say what the machine is; {_how_to_name_it(run)}")
    return as_it_ran(as_system(topology), run)


def placed(run: Run, name: str | None, nodes: int | None) -> tuple[System | None, int | None, str]:
    """Return the system of a run, and the nodes that its ranks are spread over, as the user or the run file says.

    The third is why the system is not known, or that the number of nodes is assumed.  UsageError if there is no system
    of that name.
    """
    if name:
        files.load(name)
    try:
        system = machine(run, name)
    except UsageError as error:
        return None, nodes, str(error)
    nodes = nodes or stated_nodes(system, run)
    return system, nodes, "" if nodes else trimmed(run)


def trimmed(run: Run) -> str:
    """Return a sentence on a foreign log that lists some of its ranks only; empty for any other run."""
    listed, ranks = run.header.topology.rest.get("listed"), run.header.topology.ranks
    if type(listed) is not int:
        return ""
    return f"the list of ranks is trimmed ({listed} of {ranks}): the number of nodes is not known; give --nodes N"


def _how_to_name_it(run: Run) -> str:
    """Return what to give after --on: presets with the GPUs that the header of a foreign log names, if it names any."""
    topology = run.header.topology
    named = _NAMED.fullmatch(topology.name)
    unknown = trimmed(run)
    nodes = int(named["nodes"] or 1) if named and not unknown else None
    found = matching(named["gpu"], run, nodes) if named and topology.ranks else []
    missing = f"; {unknown}" if unknown and not (found and found[0][1].is_rack) else ""
    if not named or not found:
        return f"name it with --on SYSTEM (see `collbench list`) or --on FILE.toml{missing}"
    (first, system), *others = found
    nodes = _nodes_on(system, run, nodes) or 1
    spread = f" --nodes {nodes}" if nodes > 1 else ""
    same = f", or with the same GPUs: {', '.join(name for name, _ in others)}" if others else ""
    return f"for {named[0]} name it with --on {first}{spread}{same}{missing}"


_NAMED = re.compile(r"\d+ x (?P<gpu>[\w /-]+?)(?: on (?P<nodes>\d{1,6}) nodes)?")  # as formats/imported.py writes it
_FORM, _MEMORY = re.compile(r"SXM\d?|PCIE|NVL"), re.compile(r"\d+GB")


def matching(gpu: str, run: Run, nodes: int | None) -> list[tuple[str, System]]:
    """Return the presets of such GPUs that have room for a run on so many nodes; those that its ranks fill first."""
    found, ranks = [], run.header.topology.ranks
    for name in files.names():
        system = files.load(name)
        spread = _nodes_on(system, run, nodes) or -(-ranks // system.gpus)
        if _same(gpu, system.gpu) and ranks <= spread * system.gpus and (system.nics or spread == 1):
            found.append((ranks != spread * system.gpus, name, system))
    return [(name, system) for _, name, system in sorted(found, key=lambda preset: preset[:2])]


def _nodes_on(system: System, run: Run, stated: object) -> int | None:
    """Return over how many nodes ranks are spread: as stated; of racks as few as hold them, or as their fabrics tell."""
    if not system.is_rack:
        return stated if type(stated) is int else None
    topology = discovered(run)
    racks = run.header.topology.rest.get("racks") or len({gpu.fabric for gpu in topology.gpus} if topology else ())
    return max(-(-run.header.topology.ranks // system.gpus), racks if type(racks) is int else 0)


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
    """Return the nodes that the ranks of a run are spread over, where they may lie so on the system; else None."""
    ranks = run.header.topology.ranks
    nodes = _nodes_on(system, run, run.header.topology.rest.get("nodes")) if system else None
    if not system or not nodes or nodes < 1 or (nodes > 1 and not system.nics):
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
