"""A scan as its first process sees it: round after round, until another would change nothing."""

from collections.abc import Sequence
from dataclasses import replace

from collbench.commands.scan.choice import RoundPlan, choose
from collbench.commands.scan.rows import Members, Round, Scan
from collbench.commands.scan.verdict import MOST_ROUNDS, Evidence, ScanVerdict


class Scanner:
    """What the first process knows of a scan: its members, its rounds, and which groups to measure next."""

    def __init__(self, members: Members, work: Scan, rounds: Sequence[Round] = ()) -> None:
        self.members, self.work, self.rounds = members, work, [*rounds]
        self._sizes = work.sizes or (members.case.nbytes,)
        self._evidence = Evidence(members, work.slower, self._sizes)
        for each in rounds:
            self._evidence.add(each)
        self.verdict: ScanVerdict = self._evidence.verdict()
        """What is known so far."""

    def add(self, measured: Round) -> None:
        """Take a round."""
        self.rounds.append(measured)
        self._evidence.add(measured)
        self.verdict = self._evidence.verdict()

    def next(self) -> RoundPlan | None:
        """Return the next round; None once another would change nothing, or after MOST_ROUNDS."""
        if self.verdict.sure or len(self.rounds) >= MOST_ROUNDS:
            return None
        nbytes, group = self._sizes[len(self.rounds) % len(self._sizes)], self.work.group
        out = {*self.work.lost, *self.verdict.named}
        if len(self.members.names) - len(out) < max(group, len(self.members.names) // 2):
            out = {*self.work.lost}
        if len(self.members.names) - len(out) < group:
            return None
        plan = choose(self._evidence.fits[nbytes], group, bool(self.verdict.findings), sorted(out))
        return plan._replace(nbytes=nbytes)
