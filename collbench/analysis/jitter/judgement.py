"""Who is late, in a sentence: by how much and at what cost, or nobody, or that nobody can tell."""

from collections.abc import Iterable, Sequence

import numpy as np

from collbench.analysis.jitter.accusation import Finding, Testimony, Verdict, verdict
from collbench.analysis.jitter.lateness import Steps, witnesses
from collbench.results import PACED, Result
from collbench.units import format_seconds


def verdicts(results: Iterable[Result]) -> list[str]:
    """On the ranks of a run, by all rows that say who is late; none without such rows.

    Where devices wait for the host, whoever it serves last is late: its order, not theirs.
    """
    known = witnesses(results)
    rows = [steps for result, steps in known if not result.note.paced]
    if known and not rows:
        return [f"inconclusive: {PACED}"]
    return [in_words(verdict(rows), rows)] if rows else []


def in_words(found: Verdict, rows: Sequence[Steps]) -> str:
    """The verdict, as a sentence."""
    typical = float(np.median([steps.typical for steps in rows]))
    if found.finding in (Finding.LATE, Finding.OFTEN):
        accused = (one for one in found.testimonies if one.finding in (Finding.LATE, Finding.OFTEN))
        return "; ".join(_accused(one, rows, typical) for one in accused)
    unclear = found.ranks(Finding.UNCLEAR)
    worst = max((one for one in found.testimonies if not unclear or one.rank in unclear), key=lambda one: one.late)
    how = f"by {late_by(worst, typical)} in the median"
    if found.finding is Finding.CLEAR:
        return f"nobody is late as a rule: rank {worst.rank} the most, {how}"
    more = f" (so may {len(unclear) - 1} others)" if len(unclear) > 1 else ""
    why = "measure longer with --steps, or with less else running"
    return f"inconclusive: rank {worst.rank} may be late{more}, {how}; {why}"


def late_by(testimony: Testimony, typical: float) -> str:
    """In the median, with the interval, where a step usually takes that many seconds."""
    low, high = (signed(share * typical) for share in testimony.interval)
    return f"{signed(testimony.late * typical)} ({low} .. {high})"


def _accused(testimony: Testimony, rows: Sequence[Steps], typical: float) -> str:
    rank = testimony.rank
    last = np.mean([steps.last_share(rank) for steps in rows])
    cost = np.mean([steps.cost(rank) for steps in rows])
    often = " now and then" if testimony.finding is Finding.OFTEN else ""
    return (
        f"rank {rank} is late{often}: last in {last:.0%} of the steps, by {late_by(testimony, typical)} "
        f"in the median; the others wait for it for {cost:.0%} of the time"
    )


def signed(seconds: float) -> str:
    """A time that may be negative; `?` for an end of an interval that nobody knows."""
    if not np.isfinite(seconds):
        return "?"
    return f"{'-' if seconds < 0 else ''}{format_seconds(abs(seconds))}"
