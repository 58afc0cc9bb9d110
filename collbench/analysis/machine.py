"""The system of a run: named by the user, discovered, or the presets that fit its log.

Most logs do not name their system, and many lists of ranks are incomplete.  A run therefore has candidates: systems,
each on a number of nodes.  The log and the times rule some of them out (`diagnose.judge_by_candidates`).
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
from collbench.topology.products import arch_named, product_named
from collbench.topology.render import LAUNCHES
from collbench.topology.system import ALONE, System, as_system, launched_in_graph
from collbench.units import counted, printable


def machine(run: Run, name: str | None) -> System:
    """Return the system *name*, or the system of the run; UsageError with the reason if there is none."""
    named = files.load(name) if name else None
    topology = discovered(run)
    if run.header.topology.copied:
        raise UsageError(run.header.topology.copied)
    if run.header.topology.shared:
        why = f"several ranks share a GPU. {ALONE}"
        renamed = "; or give each host its own name" if run.header.imported.tests else ""
        raise UsageError(f"{why}; {_GOOD}{renamed}")
    if hosts := run.header.topology.uneven:
        spread = f"{len(hosts)} hosts have {min(hosts)} to {max(hosts)} ranks each"
        raise UsageError(f"{spread}, and the model needs the same number on each; {_GOOD}")
    if named and not (topology and topology.sliced):
        return as_it_ran(named, run)
    if not topology or not topology.devices:
        raise UsageError(f"the machine is unknown; {_how_to_name_it(run)}")
    return as_it_ran(as_system(topology), run)


def trimmed(run: Run) -> str:
    """Return a sentence on a foreign log that lists only some of its ranks; empty for other runs."""
    listed = f"{run.header.topology.listed} of {run.header.topology.ranks}"
    why = f"the list of ranks is incomplete ({listed}) and the number of nodes unknown; give --nodes N (NVL72: racks)"
    return why if run.header.topology.listed else ""


def contradicted(system: System, run: Run, nodes: int) -> str:
    """Return a sentence if the run lists its ranks on another number of nodes; else empty, also for racks."""
    listed, host = run.header.topology.nodes, printable(run.header.environment.host or "unknown")
    if system.is_rack or listed in (0, nodes):
        return ""
    name = f" ({host})" if listed == 1 and host != "unknown" else ""
    return f"the run lists its ranks on {counted(listed, 'node')}{name}, and --nodes says {nodes}"


def fitting(run: Run) -> dict[str, int]:
    """Return the presets with a foreign log's GPUs, with the number of nodes or 0; presets that it fills come first."""
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
    """Return advice on --on for the run."""
    alike = fitting(run)
    first, *others = alike or ["SYSTEM (see `collbench list`) or --on FILE.toml"]
    nodes = alike.get(first, 0)
    what = f"for {run.header.topology.name} " if alike else ""
    spread = f" --nodes {nodes}" if nodes > 1 and run.header.topology.ranks % nodes == 0 else ""
    same = f", or with the same GPUs: {', '.join(others)}" if others else ""
    unknown = f"; {trimmed(run)}" if trimmed(run) and not nodes else ""
    return f"{what}name it with --on {first}{spread}{same}{unknown}"


_GOOD = "compare with a good run: check --reference RUN"
_NAMED = re.compile(r"\d+ x (?P<gpu>[\w /.()-]+?)(?: on (?P<nodes>\d{1,6}) nodes)?")  # formats/foreign_machine.py
_SLICE = re.compile(r"\bMIG\b")
_FORM, _MEMORY = re.compile(r"SXM\d?|PCIE|NVL"), re.compile(r"\d+GB")


def _nodes_on(system: System, run: Run) -> int:
    """Return the number of nodes of a run, 0 if unknown; for racks, the least that hold it, or its fabrics."""
    record = run.header.topology
    if not system.is_rack:
        named = _NAMED.fullmatch(record.name)
        return max(0, record.nodes or int((named and named["nodes"]) or 0))
    topology = discovered(run)
    fabrics = {gpu.fabric for gpu in topology.gpus} if topology else ()
    return max(-(-record.ranks // system.gpus), record.racks, len(fabrics))


def _same(gpu: str, preset: str) -> bool:
    """Return whether a driver's name of a GPU, NVIDIA A100-SXM4-40GB, may match that of a preset, A100 SXM4."""
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
    """Return the system with the run's release of NCCL and launch mode.

    The launch mode is a CUDA graph, or one process for several GPUs (`-g` of nccl-tests).  Values of the description
    other than the defaults are kept.
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
    """Return the fields of System that a foreign log of NCCL leaves open: launch mode and release."""
    tests, version = run.header.imported.tests, str(run.header.environment.versions.get("nccl", ""))
    if not tests or any(test.tool.startswith("osu") for test in tests):
        return ()
    open_fields = [] if any("gpus" in test.sweep for test in tests) else ["launch"]
    return tuple(open_fields if re.match(r"\d+\.\d+", version) else [*open_fields, "nccl"])


def possible(system: System, fields: Collection[str]) -> list[System]:
    """Return the possible variants of a system in these fields, the likeliest first; described values are kept."""
    launches = [system.launch]
    if "launch" in fields and system.launch == System.launch and system.gpus > 1:
        launches = ["process-per-gpu", "single-process"]
    versions = [system.nccl]
    if "nccl" in fields and system.nccl == System.nccl:
        versions += [version for version in releases_for(system.arch) if version != system.nccl]
    return [replace(system, launch=launch, nccl=version) for launch in launches for version in versions]


def assumed(system: System, fields: Collection[str]) -> str:
    """Return the assumptions of a verdict that the log does not tell: `assumed: a process for each GPU, NCCL 2.29`."""
    words = {"launch": LAUNCHES[system.launch], "nccl": f"NCCL {system.nccl}"}
    return f"assumed: {', '.join(words[name] for name in fields)}"


def discovered(run: Run) -> Topology | None:
    """Return the topology in a run's header; None if a foreign log has none."""
    topology = run.header.topology
    return topology if topology.platform and topology.ranks else None


def sized(system: System, ranks: int, nodes: int | None = None) -> System:
    """Return `ranks` ranks of a system over `nodes`, or over as few nodes as they fill; UsageError if not possible."""
    if nodes is None:
        return (system.of(-(-ranks // system.gpus)) if ranks > system.ranks else system).part(ranks)
    if ranks % nodes or ranks // nodes > system.gpus:
        even = [ranks // gpus for gpus in range(min(ranks, system.gpus), 0, -1) if ranks % gpus == 0]
        raise UsageError(
            f"{counted(ranks, 'rank')} cannot be spread evenly over {counted(nodes, 'node')} of "
            f"{counted(system.gpus, 'GPU')}; choose --nodes from: {', '.join(map(str, even))}"
        )
    return system.part(ranks // nodes).of(nodes)


def stated_nodes(system: System, run: Run) -> int | None:
    """Return the number of nodes by the run's header, or None; UsageError if its ranks cannot be spread over them."""
    nodes = _nodes_on(system, run)
    return sized(system, run.header.topology.ranks, nodes).nodes if nodes else None


def spread(system: System, part: System) -> str:
    """Return `2 nodes of 8 GPUs` or `1 rack of 8 GPUs` for a part of a system."""
    return f"{counted(part.nodes, 'rack' if system.is_rack else 'node')} of {counted(part.gpus, 'GPU')}"


def unlike_gpu(run: Run, system: System) -> tuple[str, bool]:
    """Return a sentence if the names of a run's GPUs differ from those of a system, and whether the kind differs.

    GPUs that differ only in memory are of the same kind.  The kind of an unknown product does not differ.
    """
    topology = run.header.topology
    named = [match["gpu"] for match in map(_NAMED.fullmatch, topology.name.split(" + ")) if match]
    unlike, other = "", False
    for gpu in {gpu.name for gpu in topology.gpus} or named:
        sliced = _SLICE.search(gpu)
        if not system.gpu or "GPU" in gpu or (_same(gpu, system.gpu) and not sliced):  # `unknown GPU` has no kind
            continue
        unlike = f"the run names {gpu}, and {system.name} has {system.gpu}"
        unlike_kind = sliced or not _same(_MEMORY.sub("", gpu), _MEMORY.sub("", system.gpu))
        known = all(product_named(name) or arch_named(name) for name in (gpu, system.gpu))
        other = bool(other or (known and unlike_kind))
    return unlike, other


def assumptions(run: Run, system: System | None = None, where: str = "", nodes: int | None = None) -> Iterator[str]:
    """Yield the reasons that make a verdict less sure: missing rows, other GPUs, and ranks assumed to be on `where`."""
    header = run.header
    yield from filter(None, (run.stopped, run.unread))
    if not system:
        return
    yield from filter(None, unlike_gpu(run, system)[:1])
    if nodes and system.is_rack:
        yield f"--nodes counts racks: assumed to be on {where}"
    elif nodes and (against := contradicted(system, run, nodes)):
        yield against
    whole = not header.imported.tests or (header.environment.host != "unknown" and not header.topology.listed)
    if not (nodes or header.topology.nodes or whole):
        yield f"{trimmed(run) or 'the log lists no ranks; give --nodes N'}; without it, {where} are assumed"


def remarks(run: Run) -> tuple[str, ...]:
    """Return remarks on conditions that spoil the numbers of a run, by its header."""
    topology = discovered(run)
    texts = caveats(topology) if topology else ()
    kind = platforms().get(run.header.topology.platform)
    if run.header.sweep.spin == "busy" and kind and kind.spins:
        texts += ("--spin busy: waiting ranks occupy cores that other ranks may need",)
    return texts


@dataclass(frozen=True)
class RunFacts:
    """Facts of a run's header that support or contradict reasons."""

    variables: Mapping[str, str]
    caveats: tuple[str, ...] = ()
    no_system: str = "the machine is unknown to the model"  # why there is no system to compare with
    log: Mapping[str, str] = field(default_factory=dict)  # facts of NCCL's log: transports, numbers of channels
    unplaced: str = ""  # why the number of nodes is unknown
    unsaid: tuple[str, ...] = ()  # fields of System that a log leaves open

    @classmethod
    def of(cls, run: Run, no_system: str) -> Self:
        """Return the facts of a run, without variables that collbench itself sets when ranks share a GPU."""
        variables = dict(run.header.environment.variables)
        for name in nccl.sharing(1, 1) if run.header.topology.shared else ():
            variables.pop(name, None)
        layouts = (test.layout.get("log") for test in run.header.imported.tests)
        logs = [log for log in layouts if isinstance(log, Mapping)]

        # A fact must be in all logs of a run.
        facts: dict[str, str] = {}
        for name in logs[0] if logs else ():
            agreed = set.intersection(*map(set, (str(log.get(name, "")).split(", ") for log in logs)))
            if agreed - {""}:
                facts[name] = ", ".join(sorted(agreed))
        return cls(variables, remarks(run), no_system, facts, unsaid=unsaid(run))


_NETWORKS = (  # names in NCCL's log after `NET/`, and the transports of matching presets
    (r"g?IB", ("ib", "roce")),
    (r"(AWS )?Libfabric|OFI", ("efa", "slingshot")),
    (r"FasTrak|GPUDirectTCPX", ("tcpx",)),
)


@dataclass(frozen=True)
class Candidate:
    """A possible system of a run, with a number of nodes."""

    system: System
    nodes: int | None  # None: as few as its ranks fill
    choice: str = ""  # label among several: `dgx-h100` or `--nodes 4`

    def part(self, ranks: int) -> System:
        """Return `ranks` ranks of the system."""
        return sized(self.system, ranks, self.nodes)

    def where(self, ranks: int) -> str:
        """Return `DGX H100, 2 nodes of 8 GPUs`."""
        return f"{self.system.name}, {spread(self.system, self.part(ranks or self.system.ranks))}"


def candidates(run: Run, name: str | None, nodes: int | None, facts: RunFacts) -> tuple[list[Candidate], str]:
    """Return the candidates, with a reason to doubt the user's nodes; or no candidates, with the reason."""
    described = name or run.header.topology.gpus or run.header.topology.sockets
    presets = () if described else fitting(run)
    possible_systems: list[Candidate] = []
    why = against = ""
    for preset in presets or (name,):
        try:
            system = machine(run, preset)
            unlike, other = unlike_gpu(run, system) if name else ("", False)
            if other:
                return [], unlike
            if preset in presets and _ruled_out(system, facts):
                why = "NCCL's log rules out every preset with these GPUs; give --on FILE.toml"
                continue
            every = list(_counts(system, run, nodes))
        except UsageError as error:
            why = str(error)
            continue
        for count in every:
            labels = [str(preset)] * (len(presets) > 1) + [f"--nodes {count}"] * (len(every) > 1)
            possible_systems.append(Candidate(system, count, " ".join(labels)))
            against = contradicted(system, run, count) if count else ""
    return possible_systems, against if possible_systems else why


def models_in_words(found: Sequence[Candidate], ranks: int) -> str:
    """Return `the model of DGX H100, 2 nodes of 8 GPUs`, or the models of several; empty for none."""
    names = list(dict.fromkeys(candidate.where(ranks) for candidate in found))
    return f"the model{'s' * (len(names) > 1)} of {shortened(names, '; ')}" if names else ""


def _counts(system: System, run: Run, nodes: int | None) -> Iterator[int | None]:
    """Yield the possible numbers of nodes of the ranks; None for the fewest that hold them."""
    stated = nodes or stated_nodes(system, run)
    if stated or not trimmed(run):
        yield stated
        return
    ranks = run.header.topology.ranks
    for count in range(-(-ranks // system.gpus), ranks + 1 if system.nics else 2):
        if ranks % count == 0:
            yield count


def _ruled_out(system: System, facts: RunFacts) -> bool:
    """Return whether NCCL logged more cards or another network than the system has; faults only reduce these."""
    if system.nics is None:
        return False
    cards, logged = facts.log.get("cards", ""), facts.log.get("transport", "")
    if len(list(filter(None, cards.split(", ")))) > system.nics.per_node:
        return True
    seen = [transports for pattern, transports in _NETWORKS if re.search(rf"\bNET/(?:{pattern})", logged)]
    return bool(seen) and not any(system.nics.transport in transports for transports in seen)
