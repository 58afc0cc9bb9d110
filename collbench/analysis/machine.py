"""Which system a run was measured on: as the user names it, or as it was discovered; or all presets that fit its log.

Nobody names the system of most logs, and many lists of ranks are trimmed.  So a run has candidates, each a system on a
number of nodes; those that the log or the times rule out drop out (`diagnose.judge_by_candidates`).
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from collbench.analysis.judgement import shortened
from collbench.errors import UsageError
from collbench.model.nccl_releases import releases_for
from collbench.platforms import platforms
from collbench.platforms.gpu import nccl
from collbench.runfile.store import Run
from collbench.topology import files
from collbench.topology.discovered import Topology, caveats
from collbench.topology.products import product_named
from collbench.topology.render import LAUNCHES
from collbench.topology.system import ALONE, System, as_system, launched_in_graph
from collbench.units import counted, printable


def machine(run: Run, name: str | None) -> System:
    """Return the system of a run, or the one of that name; UsageError, saying why, if none is known to be like it."""
    named = files.load(name) if name else None
    topology = discovered(run)
    if run.header.topology.copied:
        raise UsageError(run.header.topology.copied)
    if run.header.topology.shared:
        why = f"several ranks share a GPU. {ALONE}"
        renamed = "; or give hosts of one name their own" if run.header.imported.tests else ""
        raise UsageError(f"{why}; {_GOOD}{renamed}")
    if hosts := run.header.topology.uneven:
        spread = f"{len(hosts)} hosts have {min(hosts)} to {max(hosts)} ranks each"
        raise UsageError(f"{spread}, and the model knows even spreads only; {_GOOD}")
    if named and not (topology and topology.sliced):
        return as_it_ran(named, run)
    if not topology or not topology.devices:
        raise UsageError(f"the machine is not known; {_how_to_name_it(run)}")
    return as_it_ran(as_system(topology), run)


def trimmed(run: Run) -> str:
    """Return a sentence on a foreign log that lists some of its ranks only; empty for any other run."""
    listed = f"{run.header.topology.listed} of {run.header.topology.ranks}"
    why = f"the list of ranks is trimmed ({listed}): the number of nodes is not known; give --nodes N (NVL72: racks)"
    return why if run.header.topology.listed else ""


def contradicted(system: System, run: Run, nodes: int) -> str:
    """Return a sentence on a run that lists its ranks on other nodes than so many; empty for others, and for racks."""
    listed, host = run.header.topology.nodes, printable(run.header.environment.host or "unknown")
    if system.is_rack or listed in (0, nodes):
        return ""
    name = f" ({host})" if listed == 1 and host != "unknown" else ""
    return f"the run lists its ranks on {counted(listed, 'node')}{name}, and --nodes says {nodes}"


def fitting(run: Run) -> dict[str, int]:
    """Return presets with the GPUs that a foreign log names, those that it fills first; each with its nodes, or 0."""
    named, ranks = _NAMED.fullmatch(run.header.topology.name), run.header.topology.ranks
    alike: list[tuple[bool, str, int]] = []
    for name in files.names() if named and ranks else ():
        system = files.load(name)
        stated = _nodes_on(system, run)
        nodes = stated or -(-ranks // system.gpus)
        if named and _same(named["gpu"], system.gpu) and ranks <= nodes * system.gpus and (system.nics or nodes == 1):
            alike.append((ranks != nodes * system.gpus, name, stated))
    return {name: nodes for _, name, nodes in sorted(alike)}


def _how_to_name_it(run: Run) -> str:
    """Return what to give after --on."""
    alike = fitting(run)
    first, *others = alike or ["SYSTEM (see `collbench list`) or --on FILE.toml"]
    nodes = alike.get(first, 0)
    what = f"for {run.header.topology.name} " if alike else ""
    spread = f" --nodes {nodes}" if nodes > 1 and run.header.topology.ranks % nodes == 0 else ""
    same = f", or with the same GPUs: {', '.join(others)}" if others else ""
    unknown = f"; {trimmed(run)}" if trimmed(run) and not nodes else ""
    return f"{what}name it with --on {first}{spread}{same}{unknown}"


_GOOD = "hold them against a good run: check --reference RUN"
_NAMED = re.compile(r"\d+ x (?P<gpu>[\w /.()-]+?)(?: on (?P<nodes>\d{1,6}) nodes)?")  # formats/foreign_machine.py
_SLICE = re.compile(r"\bMIG\b")
_FORM, _MEMORY = re.compile(r"SXM\d?|PCIE|NVL"), re.compile(r"\d+GB")


def _nodes_on(system: System, run: Run) -> int:
    """Return how many nodes of a system a run is on, 0 if unknown; of racks the least that hold it, or its fabrics."""
    record = run.header.topology
    if not system.is_rack:
        named = _NAMED.fullmatch(record.name)
        return max(0, record.nodes or int((named and named["nodes"]) or 0))
    topology = discovered(run)
    fabrics = {gpu.fabric for gpu in topology.gpus} if topology else ()
    return max(-(-record.ranks // system.gpus), record.racks, len(fabrics))


def _same(gpu: str, preset: str) -> bool:
    """Return whether a driver's name of a GPU, NVIDIA A100-SXM4-40GB, may be that of a preset, A100 SXM4."""
    driver, named = (set(text.upper().replace("-", " ").split()) for text in (gpu, preset))
    for variant in (_FORM, _MEMORY):
        in_driver, in_preset = set(filter(variant.fullmatch, driver)), set(filter(variant.fullmatch, named))
        named -= in_preset
        # Drivers always name PCIE and NVL, but not always SXM.
        unnamed = not in_driver and not in_preset & {"PCIE", "NVL"}
        if in_preset and in_driver != in_preset and not unnamed:
            return False
    return bool(named) and named <= driver


def as_it_ran(system: System, run: Run) -> System:
    """Return the system with the run's release of NCCL and launches: in graphs, or of one process for several GPUs.

    The latter is `-g` of nccl-tests.  A description that says other than the default is believed.
    """
    version = str(run.header.environment.versions.get("nccl", ""))
    if system.nccl == System.nccl and re.fullmatch(r"\d+\.\d+(\.\d+)*", version):
        system = replace(system, nccl=version)
    if system.launch != System.launch:
        return system
    if run.header.topology.platform == "gpu" and run.header.sweep.sampling.graph:
        return launched_in_graph(system)
    driven = [test.sweep.get("gpus") for test in run.header.imported.tests]
    several = any(isinstance(gpus, int) and gpus > 1 for gpus in driven)
    return replace(system, launch="single-process") if several else system


def unsaid(run: Run) -> tuple[str, ...]:
    """Return the fields of System that a foreign log of NCCL leaves open: how its ranks were started, its release."""
    tests, version = run.header.imported.tests, str(run.header.environment.versions.get("nccl", ""))
    if not tests or any(test.tool.startswith("osu") for test in tests):
        return ()
    open_fields = [] if any("gpus" in test.sweep for test in tests) else ["launch"]
    return tuple(open_fields if re.match(r"\d+\.\d+", version) else [*open_fields, "nccl"])


def possible(system: System, fields: Collection[str]) -> list[System]:
    """Return what the system may have been, the likeliest first; what its description says is believed."""
    launches = [system.launch]
    if "launch" in fields and system.launch == System.launch and system.gpus > 1:
        launches = ["process-per-gpu", "single-process"]
    versions = [system.nccl]
    if "nccl" in fields and system.nccl == System.nccl:
        versions += [version for version in releases_for(system.arch) if version != system.nccl]
    return [replace(system, launch=launch, nccl=version) for launch in launches for version in versions]


def assumed(system: System, fields: Collection[str]) -> str:
    """Return `assumed: a process for each GPU, NCCL 2.29`: what a log does not say and a verdict rests on."""
    words = {"launch": LAUNCHES[system.launch], "nccl": f"NCCL {system.nccl}"}
    return f"assumed: {', '.join(words[name] for name in fields)}"


def discovered(run: Run) -> Topology | None:
    """Return the topology in a run's header; None where a foreign log has none."""
    topology = run.header.topology
    return topology if topology.platform and topology.ranks else None


def sized(system: System, ranks: int, nodes: int | None = None) -> System:
    """Return so many ranks of a system, over `nodes` or on as few as they fill; UsageError if it has no such part."""
    if nodes is None:
        return (system.of(-(-ranks // system.gpus)) if ranks > system.ranks else system).part(ranks)
    if ranks % nodes or ranks // nodes > system.gpus:
        even = [ranks // gpus for gpus in range(min(ranks, system.gpus), 0, -1) if ranks % gpus == 0]
        raise UsageError(
            f"{counted(ranks, 'rank')} cannot be spread evenly over {counted(nodes, 'node')} of "
            f"{counted(system.gpus, 'GPU')}; "
            f"choose --nodes from: {', '.join(map(str, even))}"
        )
    return system.part(ranks // nodes).of(nodes)


def stated_nodes(system: System, run: Run) -> int | None:
    """Return the nodes that a run says its ranks are spread over, None if it does not; UsageError if they cannot be."""
    nodes = _nodes_on(system, run)
    return sized(system, run.header.topology.ranks, nodes).nodes if nodes else None


def spread(system: System, part: System) -> str:
    """Return `2 nodes of 8 GPUs`, or `1 rack of 8 GPUs`, for the part of a system that a run is held against."""
    return f"{counted(part.nodes, 'rack' if system.is_rack else 'node')} of {counted(part.gpus, 'GPU')}"


def unlike_gpu(run: Run, system: System) -> tuple[str, bool]:
    """Return a sentence if the GPUs of a run have other names than those of a system, and whether the kind differs.

    They are of the same kind if they differ in their memory, and no kind is known of a name that is no product's.
    """
    topology = run.header.topology
    named = [match["gpu"] for match in map(_NAMED.fullmatch, topology.name.split(" + ")) if match]
    unlike, other = "", False
    for gpu in {gpu.name for gpu in topology.gpus} or named:
        sliced = _SLICE.search(gpu)
        if not system.gpu or "GPU" in gpu or (_same(gpu, system.gpu) and not sliced):  # as in `unknown GPU`
            continue
        unlike = f"the run names {gpu}, and {system.name} has {system.gpu}"
        unlike_kind = sliced or not _same(_MEMORY.sub("", gpu), _MEMORY.sub("", system.gpu))
        other = other or bool(product_named(gpu) and product_named(system.gpu) and unlike_kind)
    return unlike, other


def assumptions(run: Run, system: System | None = None, where: str = "", nodes: int | None = None) -> Iterator[str]:
    """Yield what makes a verdict less sure: missing rows, other GPUs, and that the ranks are taken to be on `where`."""
    header = run.header
    yield from filter(None, (run.stopped, run.unread))
    if not system:
        return
    yield from filter(None, unlike_gpu(run, system)[:1])
    if nodes and system.is_rack:
        yield f"--nodes counts racks: taken to be on {where}"
    elif nodes and (against := contradicted(system, run, nodes)):
        yield against
    whole = not header.imported.tests or (header.environment.host != "unknown" and not header.topology.listed)
    if not (nodes or header.topology.nodes or whole):
        yield f"{trimmed(run) or 'the log lists no ranks; give --nodes N'}; else they are taken to be on {where}"


def remarks(run: Run) -> tuple[str, ...]:
    """Return sentences on what spoils the numbers of a run, by its header."""
    topology = discovered(run)
    found = caveats(topology) if topology else ()
    kind = platforms().get(run.header.topology.platform)
    if run.header.sweep.spin == "busy" and kind and kind.spins:
        found += ("--spin busy: waiting ranks keep their cores, which the awaited ones may need",)
    return found


@dataclass(frozen=True)
class RunFacts:
    """Facts of a run's header that bear on the reasons."""

    variables: Mapping[str, str]
    caveats: tuple[str, ...] = ()
    no_system: str = "the machine is not known to the model"  # or why else there is no system to compare with
    log: Mapping[str, str] = field(default_factory=dict)  # what NCCL logged: its transports, and how many channels
    unplaced: str = ""  # why it is not known over how many nodes the ranks are spread
    unsaid: tuple[str, ...] = ()  # what a log does not say of its run: fields of System

    @classmethod
    def of(cls, run: Run, no_system: str) -> Self:
        """Return the facts of a run; what collbench itself sets where ranks share a GPU speaks for no reason."""
        variables = dict(run.header.environment.variables)
        for name in nccl.sharing(1, 1) if run.header.topology.shared else ():
            variables.pop(name, None)
        layouts = (test.layout.get("log") for test in run.header.imported.tests)
        logs = [log for log in layouts if isinstance(log, Mapping)]

        # What all logs of a run say is a fact.
        facts: dict[str, str] = {}
        for name in logs[0] if logs else ():
            agreed = set.intersection(*map(set, (str(log.get(name, "")).split(", ") for log in logs)))
            if agreed - {""}:
                facts[name] = ", ".join(sorted(agreed))
        return cls(variables, remarks(run), no_system, facts, unsaid=unsaid(run))


_NETWORKS = (  # as NCCL logs them behind `NET/`, and the transports of presets that are so
    (r"g?IB", ("ib", "roce")),
    (r"(AWS )?Libfabric|OFI", ("efa", "slingshot")),
    (r"FasTrak|GPUDirectTCPX", ("tcpx",)),
)


@dataclass(frozen=True)
class Candidate:
    """A system, as the run ran, and on how many of its nodes the run may have been."""

    system: System
    nodes: int | None  # None: as few as its ranks fill
    choice: str = ""  # what names it, where there are several: `dgx-h100`, or `--nodes 4`

    def part(self, ranks: int) -> System:
        """Return so many ranks of it."""
        return sized(self.system, ranks, self.nodes)

    def where(self, ranks: int) -> str:
        """Return `DGX H100, 2 nodes of 8 GPUs`."""
        return f"{self.system.name}, {spread(self.system, self.part(ranks or self.system.ranks))}"


def candidates(run: Run, name: str | None, nodes: int | None, facts: RunFacts) -> tuple[list[Candidate], str]:
    """Return the candidates, and why the user's nodes are doubtful; or none, and why nothing is known of the run."""
    described = name or run.header.topology.gpus or run.header.topology.sockets
    presets = () if described else fitting(run)
    found: list[Candidate] = []
    why = against = ""
    for preset in presets or (name,):
        try:
            system = machine(run, preset)
            unlike, other = unlike_gpu(run, system) if name else ("", False)
            if other:
                return [], unlike
            if preset in presets and _ruled_out(system, facts):
                why = "what NCCL logged rules out every preset with such GPUs; give --on FILE.toml"
                continue
            every = list(_counts(system, run, nodes))
        except UsageError as error:
            why = str(error)
            continue
        for count in every:
            labels = [str(preset)] * (len(presets) > 1) + [f"--nodes {count}"] * (len(every) > 1)
            found.append(Candidate(system, count, " ".join(labels)))
            against = contradicted(system, run, count) if count else ""
    return found, against if found else why


def models_in_words(found: Sequence[Candidate], ranks: int) -> str:
    """Return `the model of DGX H100, 2 nodes of 8 GPUs`, or the models of several; empty for none."""
    names = list(dict.fromkeys(candidate.where(ranks) for candidate in found))
    return f"the model{'s' * (len(names) > 1)} of {shortened(names, '; ')}" if names else ""


def _counts(system: System, run: Run, nodes: int | None) -> Iterator[int | None]:
    """Yield the numbers of nodes that the ranks may be spread over; None for as few as they fill."""
    stated = nodes or stated_nodes(system, run)
    if stated or not trimmed(run):
        yield stated
        return
    ranks = run.header.topology.ranks
    for count in range(-(-ranks // system.gpus), ranks + 1 if system.nics else 2):
        if ranks % count == 0:
            yield count


def _ruled_out(system: System, facts: RunFacts) -> bool:
    """Return whether NCCL logged more cards than a node has, or a network that the system has not.

    Fewer cards, and TCP, are what is wrong with some machines; they rule out nothing.
    """
    if system.nics is None:
        return False
    cards, logged = facts.log.get("cards", ""), facts.log.get("transport", "")
    if len(list(filter(None, cards.split(", ")))) > system.nics.per_node:
        return True
    seen = [transports for pattern, transports in _NETWORKS if re.search(rf"\bNET/(?:{pattern})", logged)]
    return bool(seen) and not any(system.nics.transport in transports for transports in seen)
