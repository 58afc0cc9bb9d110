"""Tables of `collbench verify --bits`: changes of bits, equal bits, and errors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count, groupby, pairwise
from statistics import median
from string import ascii_uppercase

from collbench.commands.verify.rows import CALLS, COMPARED, SIZE, BitDifference, SumBits
from collbench.present.columns import Column
from collbench.present.terminal import lines, room, wrapped
from collbench.results import Result, Skipped, by_key
from collbench.units import counted, format_size

LEGEND = (
    "position: the same values at another place in the array; size: the same element of arrays of several sizes\n"
    "A 6/9: the bits of group A in 6 of 9 sums; at a size: median and largest error in units in the last place (ULPs)\n"
    "of bound: largest error over the error bound of additions in the type, in any order\n"
    "accumulates in: the type of partial sums that the errors show; narrower: than the type of the sum"
)


@dataclass(frozen=True)
class SumCurve:
    """All rows of an implementation for one kind of case, over sizes and laws."""

    rows: Sequence[SumBits]

    @property
    def name(self) -> str:
        """The label of the implementation."""
        return self.rows[0].label

    @cached_property
    def found(self) -> Sequence[tuple[SumBits, BitDifference]]:
        """Pairs of row and difference, also between sizes."""
        pairs = [(row, difference) for row in self.rows for difference in row.differences]
        for rows in by_key((row for row in self.rows if row.right), lambda row: row.case.work).values():
            for small, large in pairwise(sorted(rows, key=lambda row: row.case.nbytes)):
                if difference := small.against(large, SIZE, f"after {_size(small)}"):
                    pairs.append((large, difference))
        return sorted(pairs, key=lambda pair: COMPARED.index(pair[1].what))

    def same(self, what: str) -> str | None:
        """Return in words whether the bits agree in all rows for a trial of COMPARED; None if not compared."""
        several = len({row.case.nbytes for row in self.rows}) > 1
        if not (several if what == SIZE else any(what in row.compared for row in self.rows)):
            return None
        if any(difference.what == what for _, difference in self.found):
            return "differ"
        return "same" if what != CALLS else f"{min(row.calls for row in self.rows)} same"

    def alike(self, other: "SumCurve") -> tuple[int, int]:
        """Return the number of cases with the same bits in both curves, and the number of common cases."""
        digests = {row.case: row.digest for row in other.rows}
        pairs = [row.digest == digests[row.case] for row in self.rows if row.case in digests]
        return sum(pairs), len(pairs)

    def errors(self, nbytes: int) -> str | None:
        """Return the median and the largest error at a size, in ULPs."""
        errors = [row.error for row in self.rows if row.case.nbytes == nbytes]
        if not errors:
            return None
        return f"{median(error.median for error in errors):.2g} {max(error.most for error in errors):.2g}"

    @property
    def of_bound(self) -> float:
        """The largest error over its bound."""
        return max(row.error.of_bound for row in self.rows)

    @property
    def accumulation(self) -> str:
        """The types of partial sums that the rows show."""
        return ", ".join(dict.fromkeys(row.error.accumulation for row in self.rows if row.error.accumulation))


def kinds(results: Sequence[Result]) -> dict[str, list[SumCurve]]:
    """Return the curves of all implementations by the title of each kind of case."""
    rows = [row for row in results if isinstance(row, SumBits)]
    titles = by_key(rows, lambda row: replace(row.case.kind, work=None).title)
    return {
        title: list(map(SumCurve, by_key(of, lambda row: row.implementation).values())) for title, of in titles.items()
    }


def tables(results: Sequence[Result]) -> Iterator[str]:
    """Yield the lines of all tables."""
    for title, every in kinds(results).items():
        looked = [_same(what) for what in COMPARED if any(line.same(what) for line in every)]
        yield from ("", f"{title}: changes of bits", *lines([_NAME, *looked], every, names=1), *_examples(every))
        groups = dict(zip(chain(ascii_uppercase, map(str, count(27))), _groups(every), strict=False))
        bits = _letter({line.name: name for name, group in groups.items() for line in group})
        shares = [_share(name, group[0], place) for place, (name, group) in enumerate(groups.items())]
        yield from ("", f"{title}: equal bits", *lines([_NAME, bits, *shares], every, names=1))
        sizes = sorted({row.case.nbytes for line in every for row in line.rows})
        yield from ("", f"{title}: errors", *lines([_NAME, *_ERRORS, *map(_errors, sizes)], every, names=1))
    skipped = by_key((row for row in results if isinstance(row, Skipped)), lambda row: (row.implementation, row.reason))
    yield from (
        f"skipped in {counted(len(rows), 'case')}: {name}, {reason}" for (name, reason), rows in skipped.items()
    )


_NAME = Column[SumCurve]("", lambda line: line.name)
_ERRORS = (
    Column[SumCurve]("accumulates in", lambda line: line.accumulation, form="<"),
    Column[SumCurve]("of bound", lambda line: line.of_bound, "{:.2g}".format, form=">"),
)


def _same(what: str) -> Column[SumCurve]:
    return Column(what, lambda line: line.same(what), importance=40 - COMPARED.index(what), form="<")


def _letter(of: Mapping[str, str]) -> Column[SumCurve]:
    return Column("bits", lambda line: of.get(line.name, ""), importance=20, form="<")


def _share(name: str, first: SumCurve, place: int) -> Column[SumCurve]:
    return Column(name, lambda line: line.alike(first), "{0[0]}/{0[1]}".format, max(1, 40 - place), form=">")


def _errors(nbytes: int) -> Column[SumCurve]:
    return Column(format_size(nbytes), lambda line: line.errors(nbytes), importance=nbytes.bit_length(), form=">")


def _groups(every: Sequence[SumCurve]) -> list[list[SumCurve]]:
    """Group curves with the same bits in all cases that they share with the first curve of the group."""
    groups: list[list[SumCurve]] = []
    for line in sorted(every, key=lambda line: -len(line.rows)):
        shared = ((group, *line.alike(group[0])) for group in groups)
        same = (group for group, alike, both in shared if alike == both > 0)
        if group := next(same, None):
            group.append(line)
        else:
            groups.append([line])
    return groups


def _size(row: SumBits) -> str:
    return format_size(row.case.nbytes) + (f" by {row.note.picked}" if row.note.picked else "")


def _examples(every: Sequence[SumCurve]) -> Iterator[str]:
    """Yield the first difference of each trial, with the names of all implementations that share it."""
    names: dict[str, list[str]] = {}
    for line in every:
        for what, found in groupby(line.found, key=lambda pair: pair[1].what):
            (row, first), *others = found
            more = f"; in {len(others) + 1} sums" if others else ""
            text = f"{what}: {_size(row)}, {row.case.title.rpartition(', ')[2]}, {first}{more}"
            names.setdefault(text, []).append(line.name)
    for text, of in names.items():
        sentence = f"  {', '.join(of)}, {text}"
        yield wrapped(sentence, room() or len(sentence))
