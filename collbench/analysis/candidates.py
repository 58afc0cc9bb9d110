"""The systems that a run may have been measured on: the named or described one, or all presets that fit its log.

Nobody names the system of most logs, and many lists of ranks are trimmed.  So a curve is held against each candidate, a
system on a number of nodes.  Candidates that the log or the times rule out drop out; the others must agree on a word.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collbench.analysis.diagnose import Diagnosis, judge_curve, with_reasons
from collbench.analysis.judgement import LISTED, Sight, Word
from collbench.analysis.machine import (
    RunFacts,
    contradicted,
    fitting,
    machine,
    sized,
    spread,
    stated_nodes,
    trimmed,
    unlike_gpu,
)
from collbench.errors import UsageError
from collbench.results import Observed
from collbench.runfile.store import Run
from collbench.topology.system import System

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
    return f"the model{'s' * (len(names) > 1)} of {_first(names, '; ')}" if names else ""


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


def judge_by_candidates(
    curves: Sequence[Sequence[Observed]], found: Sequence[Candidate], facts: RunFacts
) -> tuple[list[Diagnosis], list[Candidate]]:
    """Hold curves against every candidate; return a diagnosis of each, and the candidates that the times leave."""
    if not found:
        return [judge_curve(rows, None, facts) for rows in curves], []
    every: dict[str, list[Diagnosis]] = {}
    for candidate in found:
        every[candidate.choice] = [judge_curve(rows, candidate.part(rows[0].case.ranks), facts) for rows in curves]
    left = [candidate for candidate in found if not any(diagnosis.refuted for diagnosis in every[candidate.choice])]

    # The times refute all of them, or the only one: the first says how.
    choices = [candidate.choice for candidate in left or found[:1]]
    by_curve = zip(*(every[choice] for choice in choices), strict=True)
    return [with_reasons(_agreed(each, choices), facts) for each in by_curve], left or list(found)


def _agreed(every: Sequence[Diagnosis], choices: Sequence[str]) -> Diagnosis:
    """Return the diagnosis that is nearest to the times, with the word on which all candidates agree."""
    judged = [diagnosis for diagnosis in every if diagnosis.judged] or every
    words = {diagnosis.word for diagnosis in judged}
    nearest = min(judged, key=lambda diagnosis: diagnosis.off)
    if Word.SLOW in words and len(words) > 1:
        return replace(nearest, word=Word.UNKNOWN, remark=_choices(every, choices), together=False)

    # Faster than one of them is modelled is as expected of another.
    word = next(word for word in (Word.UNKNOWN, Word.SLOW, Word.OK, Word.FAST) if word in words)
    nearest = min((each for each in judged if each.word is word), key=lambda diagnosis: diagnosis.off)
    sight = Sight.of_all(diagnosis.sight for diagnosis in judged)
    return replace(nearest, sight=sight) if len(judged) > 1 else nearest


def _choices(every: Sequence[Diagnosis], choices: Sequence[str]) -> str:
    """Return which of the candidates make a curve slow, and which do not."""
    slow = [choice for diagnosis, choice in zip(every, choices, strict=True) if diagnosis.word is Word.SLOW]
    other = [choice for choice in choices if choice not in slow]
    return f"slow as {_first(slow)}, and not as {_first(other)}: say which it is (--on, --nodes)"


def _first(names: Sequence[str], between: str = ", ") -> str:
    more = [f"{len(names) - LISTED} more"] if len(names) > LISTED else []
    return between.join([*names[:LISTED], *more])
