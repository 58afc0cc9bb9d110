"""A scan as its first process sees it: round after round, until another would change nothing."""

from collections.abc import Sequence

import numpy as np

from collbench.commands.scan.choice import RoundPlan, choose
from collbench.commands.scan.posterior import Belief
from collbench.commands.scan.rows import Members, Round, Scan
from collbench.commands.scan.verdict import MOST_ROUNDS, ScanVerdict, judged, posterior_of


class Scanner:
    """What the first process knows of a scan: its members, its rounds, and which groups to measure next."""

    def __init__(self, members: Members, work: Scan, rounds: Sequence[Round] = ()) -> None:
        self.members, self.work, self.rounds = members, work, [*rounds]
        self._posterior = posterior_of(members, work.slower)
        for each in rounds:
            self._posterior.add(each)
        self._belief: Belief = self._posterior.believe()

    def add(self, measured: Round) -> None:
        """Take a round."""
        self.rounds.append(measured)
        self._posterior.add(measured)
        self._belief = self._posterior.believe()

    @property
    def verdict(self) -> ScanVerdict:
        """What is known so far."""
        return judged(self.members, self._belief, self.rounds, self.work.slower)

    def next(self) -> RoundPlan | None:
        """Return the next round; None once another would change nothing, or after MOST_ROUNDS."""
        verdict = self.verdict
        if verdict.sure or len(self.rounds) >= MOST_ROUNDS:
            return None

        # A slow member would only slow the others of its group.
        names = self.members.names
        slow = {finding.name for finding in verdict.faulty if finding.decided}
        out = [place for place, name in enumerate(names) if name in slow or place in self.work.lost]
        size = self.work.group
        if len(names) - len(out) < size:
            return None
        random = np.random.default_rng(len(self.rounds))
        return choose(self._posterior.hypotheses, self._belief, size, random, out)
