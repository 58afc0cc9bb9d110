"""Judgements of several inputs: a line each, the worst first, and what other programs read of all of them."""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from collbench.analysis.judgement import LISTED, Word, number, worst
from collbench.cli.verdicts import junit, line_of, write_verdict
from collbench.commands.check.library import Judged
from collbench.commands.check.outputs import document, line, lines, metrics, suite
from collbench.present.columns import Column
from collbench.present.terminal import lines as table_lines
from collbench.units import counted, format_rate

_COUNT = re.compile(r"^\d+ (x |ranks$)")  # which the column of ranks has


def word(judged: Sequence[Judged]) -> Word:
    """Return the worst word; what was refused is UNKNOWN."""
    return worst(each.result.word for each in judged)


def summary(judged: Sequence[Judged]) -> str:
    """Return `43 inputs: 2 SLOW, 12 UNKNOWN, 20 OK, 9 refused; all_reduce.log SLOW, ...`."""
    counts = Counter("refused" if each.refused else each.result.word.value for each in judged)
    bad = [f"{each.name} {each.result.word.value}" for each in judged if each.result.word.bad]
    named = bad[:LISTED] + [f"{len(bad) - LISTED} more"] * (len(bad) > LISTED)
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return "; ".join(filter(None, (f"{counted(len(judged), 'input')}: {kinds}", ", ".join(named))))


def _busbw(each: Judged) -> float | None:
    rows = [size.row for size in each.result.sizes]
    rates = [row.busbw for row in rows if row.case.ranks > 1 and not row.note.shared]
    return max(rates, default=0.0) or None


def _ranks(each: Judged) -> str:
    ranks = dict.fromkeys(size.row.case.ranks for size in each.result.sizes)
    return ", ".join(map(str, ranks))


INPUTS: tuple[Column[Judged], ...] = (
    Column("input", lambda each: each.name, key="input"),
    Column("collective", lambda each: ",".join(each.result.collectives), importance=30),
    Column("ranks", _ranks, importance=20, form=">"),
    Column("GPU", lambda each: _COUNT.sub("", each.result.where), importance=10),
    Column("busbw", _busbw, format_rate, 40, ">"),
    Column("ratio", lambda each: number(each.result.judgement.ratio.value), "{:.2f}x".format, form=">"),
    Column("", lambda each: each.result.word.value, form="<"),
)
"""The columns of several inputs: the best bus bandwidth of each, and the ratio of its most telling size."""


def shown(judged: Sequence[Judged], verbose: bool) -> Iterator[str]:
    """Yield a single judgement at length; of several a line each, what is behind SLOW and WRONG, and what was refused.

    `verbose` yields all of several at length too.
    """
    if len(judged) == 1:
        yield from lines(judged[0].result)
        return
    read = [each for each in judged if not each.refused]
    if verbose:
        for each in read:
            yield from ("", f"{each.name}: {each.result.line}", *lines(each.result))
    if read:
        yield from table_lines(INPUTS, _without_folder(read))
        yield ""
    for each in read:
        if each.result.word.bad and not verbose:
            yield f"{each.name}: {each.result.words}"
    for each in judged:
        if each.refused:
            yield f"refused: {each.result.no_verdict}"


def _without_folder(judged: Sequence[Judged]) -> list[Judged]:
    """Return judgements with names that lack the folder that all of them are in."""
    parents = {Path(each.name).parent for each in judged}
    if len({parent.is_absolute() for parent in parents}) > 1:
        return list(judged)
    folder = os.path.commonpath(parents)
    return [replace(each, name=str(Path(each.name).relative_to(folder))) for each in judged]


def last_line(judged: Sequence[Judged], exits: str) -> str:
    """Return the line of a verdict, or of several, as the program expects it that the exit status is for."""
    return line(judged[0].result, exits) if len(judged) == 1 else line_of(exits, word(judged), summary(judged))


def _documents(judged: Sequence[Judged]) -> dict[str, Any]:
    every = []
    for each in judged:
        which = {"input": each.name, "refused": each.refused} if each.name else {}
        every.append(document(each.result) | which)
    return every[0] if len(every) == 1 else {"inputs": every}


OUTPUTS: Mapping[str, Callable[[Sequence[Judged]], str]] = {
    "json": lambda judged: json.dumps(_documents(judged), indent=2, allow_nan=False),
    "junit": lambda judged: junit([suite(each.result, each.name) for each in judged]),
    "metrics": lambda judged: metrics(judged[0].result),
}
"""What can be written into a file, by the name of its option."""


def write(output: str, path: Path, judged: Sequence[Judged]) -> None:
    """Write a verdict into a file; StorageError if it cannot be written."""
    regular = path.is_file() or not path.exists()
    if judged[0].result.no_verdict and len(judged) == 1 and not regular:  # a pipe holds no earlier verdict
        return
    write_verdict(output, path, OUTPUTS[output](judged))
