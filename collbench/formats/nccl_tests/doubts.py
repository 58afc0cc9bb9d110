"""Where a log contradicts itself: what is resolved by its own evidence is remarked, what is not is left out."""

from collections.abc import Iterator
from functools import cached_property

from collbench.formats.nccl_tests.evidence import Witness
from collbench.formats.nccl_tests.facts import LogFacts
from collbench.formats.nccl_tests.ranks import trimmed
from collbench.formats.source import clean


class Doubts:
    """What speaks against a test, and against single rows of it."""

    def __init__(self, facts: LogFacts) -> None:
        self._facts = facts
        self._witnesses = facts.evidence.witnesses
        self._places = len(facts.section.columns.places) if facts.section.columns else 1

    @cached_property
    def of_test(self) -> str:
        """Why no row of it can be kept; "" if they can."""
        named = self._facts.named
        if self._facts.collective is None:
            return f"collbench has no collective like {clean(named.name, 40)}"
        return f"not of {clean(named.name, 40)}: {named.objection}" if named.objection else ""

    def of_row(self, at: int) -> str:
        """Why a row cannot be kept; "" if it can."""
        for witness in self._witnesses[at * self._places : (at + 1) * self._places]:
            timely = witness.timely() if self._timed else None
            printed = f"{witness.nbytes} bytes in {clean(witness.seconds[0], 12)} {self._unit}"
            if timely is False:
                return f"{printed} are not {clean(witness.algbw, 12)} GB/s"
            if not timely and self._oddly_cut(witness) and 2 * self._odd * self._places <= len(self._witnesses):
                return f"{witness.elements} {clean(witness.dtype, 12)} are not {witness.nbytes} bytes"
        return ""

    @property
    def _unit(self) -> str:
        columns = self._facts.section.columns
        return "ms" if columns and columns.unit > 1e-6 else "us"

    @cached_property
    def _timed(self) -> bool:
        """Whether time and algorithm bandwidth belong together in most rows."""
        told = [timely for witness in self._witnesses if (timely := witness.timely()) is not None]
        return self._facts.evidence.timed and 2 * told.count(False) <= len(told)

    def _oddly_cut(self, witness: Witness) -> bool:
        """Whether count and type do not make the size, or a rank's share of it."""
        collective, ranks = self._facts.collective, self._facts.counted.ranks
        return witness.cut not in (None, ranks if collective and collective.sharded else 1)

    @cached_property
    def _odd(self) -> int:
        """Rows whose count and type do not make their size."""
        return sum(map(self._oddly_cut, self._witnesses[:: self._places]))

    @property
    def remarks(self) -> Iterator[str]:
        """What was contradictory and is resolved, for the user."""
        facts, evidence = self._facts, self._facts.evidence
        if not facts.section.rows or self.of_test:
            return
        yield from filter(None, (facts.named.remark, facts.counted.why))
        listed = {(device.group, device.rank) for device in facts.section.devices}
        ranks = facts.counted.ranks or 0
        if trimmed(listed) > 0 and ranks > len(listed):
            yield f"its list of ranks is trimmed: {ranks - len(listed)} of {ranks} are not there"
        if evidence.ratio is None:
            yield "its bus bandwidths contradict its algorithm bandwidths"
        if evidence.timed and not self._timed:
            yield "its algorithm bandwidths are not size over time; times are kept"
        if self._odd:
            yield f"count and type do not make the size in {self._odd} rows; those that bandwidths confirm are kept"
