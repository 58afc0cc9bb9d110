"""Which collective a test of a log is of: by what it says of itself, by the user's word, and by what its rows allow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from collbench.formats.imported import known_collective
from collbench.formats.nccl_tests.evidence import Evidence


@dataclass(frozen=True)
class Name:
    """What a test calls its collective, "" if nothing tells; what the user must know, and what speaks against it."""

    name: str
    remark: str = ""
    objection: str = ""


@dataclass(frozen=True)
class Sayings:
    """Who says what of a test, the strongest first."""

    itself: str  # the program that the test says it is
    above: Sequence[str]  # the programs that lines above its table name, the nearest last
    user: str  # --op
    alone: bool  # whether the file has no other test
    elsewhere: Sequence[str]  # programs that the rest of the file and its name mention


def named(said: Sayings, evidence: Evidence, ranks: int | None) -> Name:
    """The name that a test has; `ranks` are those that it lists.

    What a test says of itself stands, or is refused where its rows contradict it.  The user's word fills in what is
    not said; it does not relabel one test of several whose command line says otherwise.
    """

    def judged(name: str, who: str = "") -> Name:
        collective, wanted = known_collective(name), known_collective(said.user)
        differs = bool(who and said.user and collective is not wanted)
        remark = f"{who} {name}, so it is not read as the {said.user} of --op" if differs else ""
        return Name(name, remark, evidence.objection(collective, ranks) if collective else "")

    near, far = _fitting(said.above, judged), _fitting([*said.above, *said.elsewhere], judged)
    if said.itself:
        return judged(said.itself, "it says")
    if said.user and (said.alone or len(near) != 1):
        differs = said.alone and len(near) == 1 and known_collective(near[0]) is not known_collective(said.user)
        remark = f"read as the {said.user} of --op, though a line above it names {near[0]}" if differs else ""
        return replace(judged(said.user), remark=remark)
    if len(near) == 1:
        return judged(near[0], "its command line says")
    if len(far) == 1:
        return judged(far[0])
    if said.above and not near:
        return judged(said.above[-1])  # what it was started as it cannot be
    guessed = evidence.collectives(ranks) or evidence.collectives(None)
    return Name(guessed[0].name if len(guessed) == 1 else "")


def _fitting(names: Sequence[str], judged: Callable[[str], Name]) -> list[str]:
    """Those against which nothing speaks, one for each collective."""
    fitting = {(known.name if (known := known_collective(name)) else name): name for name in names}
    return [name for name in fitting.values() if not judged(name).objection]
