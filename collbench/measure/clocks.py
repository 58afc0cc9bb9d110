"""One clock for all ranks: offsets from rank 0's clock, with bounds.

Rank 0 asks, the other rank answers with its clock, and the shortest of many round trips counts. The error is at most
half of that trip, however unequal its two ways are (F. Cristian, 1989, "Probabilistic clock synchronization"). NTP's
filter also takes the shortest (RFC 5905, section 10). Readings before and after a measurement give the drift.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from collbench.platforms.processes import Team

_TRIPS, _SECONDS = 200, 0.05  # limits of a reading: round trips, and seconds where ranks share a core
_ASKED, _ENOUGH = 1.0, 0.0  # messages of rank 0

Taken = Sequence[tuple[float, Sequence[float], Sequence[float]]]
"""For every rank, by its own clock: its start, and the end of computing and of communication of each step."""

Moments = tuple[float, ...]


class Trip(NamedTuple):
    """Times of a question and its answer in seconds; the first and the last are by the asking rank's clock."""

    asked: float
    theirs: float
    answered: float


@dataclass(frozen=True)
class Reading:
    """A clock's lead over the reference in seconds, at a time of the reference."""

    at: float
    ahead: float
    error: float  # bound on its error

    @classmethod
    def of(cls, trips: Iterable[Trip]) -> "Reading":
        """Return the reading of the shortest trip."""
        best = min(trips, key=lambda trip: trip.answered - trip.asked)
        middle = (best.asked + best.answered) / 2
        return cls(middle, best.theirs - middle, (best.answered - best.asked) / 2)


DIGITS = 9
"""Decimals of a time in seconds: clocks resolve a nanosecond at best, and a series has thousands of times."""


@dataclass(frozen=True)
class Clock:
    """A rank's clock, with a constant drift."""

    readings: tuple[Reading, ...]  # in order; the drift needs two

    @property
    def same(self) -> bool:
        """Whether it is the reference itself, within the error.

        Processes of one machine share perf_counter, the kernel's monotonic clock on all cores. Their measured offset
        is only the estimate's error and must not be subtracted. Clocks of two machines do not agree within
        microseconds.
        """
        return all(abs(reading.ahead) <= reading.error for reading in self.readings)

    @property
    def drift(self) -> float:
        """Seconds gained on the reference per second; 0 if it is the same clock."""
        first, last = self.readings[0], self.readings[-1]
        return 0.0 if self.same or last.at <= first.at else (last.ahead - first.ahead) / (last.at - first.at)

    @property
    def error(self) -> float:
        """Bound on the error of converted times, in seconds, between the readings."""
        return max(reading.error for reading in self.readings)

    def on_reference(self, moments: Sequence[float]) -> tuple[float, ...]:
        """Convert times of this clock to the reference's."""
        if self.same:
            return tuple(moments)
        first, rate = self.readings[0], self.drift
        return tuple(first.at + (moment - first.at - first.ahead) / (1 + rate) for moment in moments)


REFERENCE = Clock((Reading(0.0, 0.0, 0.0),))


@dataclass
class Clocks:
    """The clocks of all ranks."""

    team: Team
    origins: float = 0.0  # error of device times against their process's clock, in seconds
    _readings: list[tuple[Reading, ...]] = field(default_factory=list)

    def read(self) -> None:
        """*Collective*: compare every process's clock with rank 0's.

        The other ranks sleep: if ranks outnumber cores, a spinning rank would lengthen the trips.
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
        """The clock of each process, so of each rank if there are several processes."""
        return tuple(map(Clock, zip(*self._readings, strict=True)))

    @property
    def error(self) -> float:
        """Bound on the error between times of two ranks, in seconds."""
        worst = sorted((clock.error for clock in self.clocks), reverse=True)
        return sum(worst[:2]) + 2 * self.origins

    def moments(self, taken: Taken) -> tuple[Moments, tuple[Moments, ...], tuple[Moments, ...]]:
        """Return times on rank 0's clock, relative to the first: start by rank; computed and done by rank and step."""
        clocks = (
            self.clocks if len(self.clocks) == len(taken) else (REFERENCE,) * len(taken)
        )  # one process holds all ranks
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
