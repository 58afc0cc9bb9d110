"""A scan as its first process sees it: round after round, until another would change nothing."""

from collections.abc import Sequence

from collbench.commands.scan.choice import RoundPlan, choose
from collbench.commands.scan.rows import Members, Round, Scan
from collbench.commands.scan.verdict import LEAST_ROUNDS, MOST_ROUNDS, Evidence, ScanVerdict

_ENOUGH = 12  # groups of a slow member after which it is left out, in as many rounds before the least


class Scanner:
    """The first process's knowledge of a scan: its members, its rounds, and the groups to measure next."""

    def __init__(self, members: Members, work: Scan, rounds: Sequence[Round] = ()) -> None:
        self._work, self._sizes, self.count = work, work.sizes or (members.case.nbytes,), 0
        self._members, self._evidence = len(members.names), Evidence(members, work.slower, self._sizes)
        for each in rounds:
            self.add(each)
        self.verdict: ScanVerdict = self._evidence.verdict()
        """What is known so far."""

    def add(self, measured: Round) -> None:
        """Take a round."""
        self.count += 1
        self._evidence.add(measured)

    def next(self) -> RoundPlan | None:
        """Return the next round; None once another would change nothing, or after MOST_ROUNDS."""
        self.verdict = self._evidence.verdict()
        if self.verdict.sure or self.count >= MOST_ROUNDS:
            return None
        size, group = self._sizes[self.count % len(self._sizes)], self._work.group
        out = {*self._work.lost}
        if self.count > LEAST_ROUNDS - _ENOUGH:  # who is slow in all its groups would only slow others
            lasting = [
                each.effect for each in self.verdict.faulty if each.effect.often == 1 and not each.effect.fault.way
            ]
            known = [each for each in lasting if each.groups >= _ENOUGH and each.fault.kind != "link"]
            slow = {member for effect in known for member in effect.members}
            out |= slow if 2 * len(slow) < self._members - group else set()
        if self._members - len(out) < group:
            return None
        return choose(self._evidence.fits[size], group, bool(self.verdict.findings), sorted(out))._replace(nbytes=size)
