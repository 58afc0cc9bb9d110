"""What is kept of one run file: facts for the list, and the median of each case for choosing a baseline."""

import math
import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from collbench.errors import RunFileError
from collbench.measurement import Result, timed
from collbench.observed import Timed
from collbench.outcome import Outcome
from collbench.runfile.cut_off import whole
from collbench.runfile.file import NAME, BadRow, Run, TornLine, read
from collbench.runfile.records import case_fields
from collbench.units import visible

Medians = dict[str, dict[int, float]]
"""Seconds of an operation: first by everything that makes a curve, then by size."""

_LONGEST = 200  # characters kept of a word; files from elsewhere may hold anything


@dataclass(frozen=True)
class Facts:
    """What a list says of a run file; words are fit for a terminal, and "" where the file says nothing."""

    started: str = ""  # as the header says it
    host: str = ""
    topology: str = ""
    tool: str = ""  # that printed the numbers, if they were imported
    setting: str = ""  # that was tried in this run, interleaved with one without it
    platforms: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    collectives: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    implementations: tuple[str, ...] = ()
    rows: int = 0
    wrong: int = 0
    failed: int = 0
    skipped: int = 0
    unread: int = 0  # lines that are no results
    complete: bool = False
    broken: str = ""  # why it cannot be read

    @property
    def kind(self) -> tuple[str, ...]:
        """What two runs must have in common for one to be the baseline of the other, besides a case."""
        return self.topology, self.tool, self.setting

    def when(self, modified: float) -> float:
        """Seconds since 1970 at which it started; a file that does not say counts from when it was last written."""
        try:
            return datetime.fromisoformat(self.started).timestamp()  # local time, where it names no zone
        except (ValueError, OverflowError, OSError):
            return modified


class Scan(NamedTuple):
    """What was read of a file; `lasting` unless the file may be read another time without being changed."""

    facts: Facts
    medians: Medians
    lasting: bool = True


def scan(path: Path) -> Scan:
    """Read a run file; one that cannot be read is a fact too."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TornLine)  # it may be being written right now
            warnings.simplefilter("ignore", BadRow)  # they are counted
            run = read(path)
        return Scan(facts_of(run), medians_of(run.results))
    except RunFileError as error:
        return Scan(Facts(broken=word(str(error).replace(str(path), NAME))), {}, not _unreachable(error))
    except Exception as error:  # one file from elsewhere must not cost the list of all others
        return Scan(Facts(broken=word(f"{NAME} is not a run file: {type(error).__name__}: {error}")), {})


def _unreachable(error: RunFileError) -> bool:
    return isinstance(error.__context__, OSError)


def facts_of(run: Run) -> Facts:
    """The facts of a run."""
    header, results = run.header, run.results
    return Facts(
        started=word(header.started),
        host=word(header.environment.host),
        topology=word(header.topology.name),
        tool=word(header.imported.tool),
        setting=word(header.interleaved.setting),
        platforms=_words(result.platform for result in results) or _words([header.topology.platform]),
        ranks=tuple(sorted({result.case.ranks for result in results} or {header.topology.ranks} - {0})),
        collectives=_words(result.case.collective.name for result in results) or _words(header.sweep.collectives),
        dtypes=_words(result.case.dtype.name for result in results) or _words(header.sweep.dtypes),
        implementations=_words(result.implementation for result in results) or _words(header.sweep.implementations),
        rows=len(results),
        wrong=sum(result.outcome is Outcome.WRONG for result in results),
        failed=sum(result.outcome is Outcome.FAILED for result in results),
        skipped=sum(result.outcome is Outcome.SKIPPED for result in results),
        unread=len(run.left_out),
        complete=whole(run),
    )


def medians_of(results: Iterable[Result | Timed]) -> Medians:
    """The figure to quote of each case that has one; of a case measured twice in a run, the later."""
    medians: Medians = {}
    for result in timed(results):
        if math.isfinite(result.typical) and result.typical > 0:
            platform = getattr(result, "platform", "")
            fields = case_fields(result.case)
            nbytes = fields.pop("nbytes")
            curve = " ".join(map(str, (*fields.values(), result.implementation, platform)))
            medians.setdefault(curve, {})[nbytes] = result.typical
    return medians


def word(text: str) -> str:
    """A text as it may stand on a terminal: no control characters, no lone surrogates, not too long."""
    return visible(text[:_LONGEST])


def shown(path: Path) -> str:
    """A path as it may stand on a terminal; all of it, since people copy it."""
    return visible(os.fsencode(path).decode(errors="replace"))


def _words(texts: Iterable[str]) -> tuple[str, ...]:
    """Each word once, in the order of the file."""
    return tuple(dict.fromkeys(filter(None, map(word, texts))))
