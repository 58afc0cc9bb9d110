"""One clock for the moments of all ranks: how far the others' are ahead of rank 0's, and how sure that is.

Rank 0 asks, the other answers with its clock, and of many round trips the shortest counts: the middle of a trip is off
by half of it at most, however unequal the two ways are (F. Cristian, 1989, "Probabilistic clock synchronization"; NTP's
filter takes the shortest too: RFC 5905, section 10).  Readings before and after what is timed tell the drift.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from collbench.platforms.processes import Team

_TRIPS, _SECONDS = 200, 0.05  # round trips of a reading at most, and how long they may take where ranks share a core
_ASKED, _ENOUGH = 1.0, 0.0  # what rank 0 sends

Taken = Sequence[tuple[float, Sequence[float], Sequence[float]]]
"""Of every rank by its own clock: when it began, when it had computed every step and when it was done with it."""

Moments = tuple[float, ...]


class Trip(NamedTuple):
    """A question and its answer: seconds, the first and the last by the clock of who asked."""

    asked: float
    theirs: float
    answered: float


@dataclass(frozen=True)
class Reading:
    """How far a clock is ahead of the reference, in seconds, at a moment of the reference."""

    at: float
    ahead: float
    error: float  # it is no farther off than this

    @classmethod
    def of(cls, trips: Iterable[Trip]) -> "Reading":
        """Return the reading of the shortest exchange."""
        best = min(trips, key=lambda trip: trip.answered - trip.asked)
        middle = (best.asked + best.answered) / 2
        return cls(middle, best.theirs - middle, (best.answered - best.asked) / 2)


DIGITS = 9
"""Decimals of a moment in seconds: the clocks are no finer than a nanosecond, and a series has thousands of moments."""


@dataclass(frozen=True)
class Clock:
    """A rank's clock, which goes too fast or too slow by a steady rate."""

    readings: tuple[Reading, ...]  # in order; one alone says nothing of the rate

    @property
    def same(self) -> bool:
        """Whether it is the reference itself, as far as anybody can tell.

        Processes of one machine share perf_counter, the kernel's monotonic clock, alike on all cores.  Their offset is
        the estimate's error, and must not be taken off.  Clocks of two machines do not agree within microseconds.
        """
        return all(abs(reading.ahead) <= reading.error for reading in self.readings)

    @property
    def drift(self) -> float:
        """Seconds by which it gains on the reference, in a second of that; 0 where it is the same."""
        first, last = self.readings[0], self.readings[-1]
        return 0.0 if self.same or last.at <= first.at else (last.ahead - first.ahead) / (last.at - first.at)

    @property
    def error(self) -> float:
        """Seconds by which a moment may be off on the reference's clock, between the readings."""
        return max(reading.error for reading in self.readings)

    def on_reference(self, moments: Sequence[float]) -> tuple[float, ...]:
        """Moments of this clock, as the reference would have them."""
        if self.same:
            return tuple(moments)
        first, rate = self.readings[0], self.drift
        return tuple(first.at + (moment - first.at - first.ahead) / (1 + rate) for moment in moments)


REFERENCE = Clock((Reading(0.0, 0.0, 0.0),))


@dataclass
class Clocks:
    """Those of all ranks."""

    team: Team
    origins: float = 0.0  # seconds by which moments of devices may be off the clock of their process
    _readings: list[tuple[Reading, ...]] = field(default_factory=list)

    def read(self) -> None:
        """*Collective*: hold every process's clock against that of rank 0.

        The others sleep: where ranks outnumber cores, one that spins would lengthen the trips of the others.
        """
        team = self.team
        own: tuple[Reading, ...] = REFERENCE.readings
        if team.size > 1:
            team.meet()
            if team.leader:
                own = (*own, *(Reading.of(_asking(team, peer)) for peer in range(1, team.size)))
            else:
                _answer(team)
        self._readings.append(team.broadcast(own))

    @property
    def clocks(self) -> tuple[Clock, ...]:
        """By process, which is by rank where there are several."""
        return tuple(map(Clock, zip(*self._readings, strict=True)))

    @property
    def error(self) -> float:
        """Seconds by which moments of two ranks may be off against each other."""
        worst = sorted((clock.error for clock in self.clocks), reverse=True)
        return sum(worst[:2]) + 2 * self.origins

    def moments(self, taken: Taken) -> tuple[Moments, tuple[Moments, ...], tuple[Moments, ...]]:
        """Return moments on rank 0's clock, from the first on: begun by rank; computed and done by rank and step."""
        clocks = self.clocks if len(self.clocks) == len(taken) else (REFERENCE,) * len(taken)  # one holds all ranks
        begins = [clock.on_reference([begun])[0] for clock, (begun, _, _) in zip(clocks, taken, strict=True)]
        origin = min(begins)

        def shifted(clock: Clock, moments: Sequence[float]) -> tuple[float, ...]:
            return tuple(round(moment - origin, DIGITS) for moment in clock.on_reference(moments))

        return (
            tuple(round(begun - origin, DIGITS) for begun in begins),
            tuple(shifted(clock, computed) for clock, (_, computed, _) in zip(clocks, taken, strict=True)),
            tuple(shifted(clock, done) for clock, (_, _, done) in zip(clocks, taken, strict=True)),
        )


def _asking(team: Team, peer: int) -> Iterator[Trip]:
    question, answer = np.array([_ASKED]), np.zeros(1)
    end = time.perf_counter() + _SECONDS
    for _ in range(_TRIPS):
        asked = time.perf_counter()
        team.send(question, peer)
        team.receive(answer, peer)
        answered = time.perf_counter()
        yield Trip(asked, float(answer[0]), answered)
        if answered > end:
            break
    question[0] = _ENOUGH
    team.send(question, peer)


def _answer(team: Team) -> None:
    question, answer = np.zeros(1), np.zeros(1)
    team.sleep_until_sent()
    while True:
        team.receive(question, 0)
        if question[0] == _ENOUGH:
            return
        answer[0] = time.perf_counter()
        team.send(answer, 0)
