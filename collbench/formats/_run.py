"""Foreign tests as runs: those of one machine share a run file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from collbench import __version__
from collbench.cases import Case
from collbench.collectives import Collective
from collbench.formats.imported import Test
from collbench.formats.source import clean
from collbench.measurement import Reported, Result


@dataclass(frozen=True)
class Imported:
    """What goes into one run file."""

    tests: tuple[Test, ...]

    @property
    def results(self) -> list[Result]:
        """Every row; what a foreign row printed says which of the header's tests it belongs to."""
        return [_numbered(each, number) for number, test in enumerate(self.tests) for each in test.results]

    @property
    def cases(self) -> list[Case]:
        """Of the rows."""
        return [each.case for test in self.tests for each in test.results]

    @property
    def collectives(self) -> list[Collective]:
        """Those that occur, in order."""
        return list({case.collective.name: case.collective for case in self.cases}.values())

    def header(self, command: Sequence[str]) -> dict[str, Any]:
        """The run file's header."""
        first, machine = self.tests[0], self.tests[0].machine
        started = sorted(test.started for test in self.tests if test.started)
        return {
            "collbench": __version__,
            "command": list(command),
            "started": started[0] if started else None,
            "environment": {
                "host": machine.host or "unknown",
                "versions": dict(machine.versions),
                "variables": dict(machine.variables),
            },
            "topology": {"name": machine.name, "platform": machine.platform, "ranks": machine.ranks}
            | ({"nodes": machine.nodes} if machine.nodes else {}),
            "sweep": self._sweep(),
            "imported": {
                "tool": first.tool,
                "version": first.version,
                "file": first.file,
                "complete": all(test.complete for test in self.tests),
                "left_out": [reason for test in self.tests for reason in test.left_out],
                "tests": [_noted(test) for test in self.tests],
            },
        }

    def _sweep(self) -> dict[str, Any]:
        """What is known of it, by the names that a sweep has in a header."""
        cases = self.cases
        return {
            "collectives": [each.name for each in self.collectives],
            "sizes": sorted({case.nbytes for case in cases}),
            "dtypes": list(dict.fromkeys(case.dtype.name for case in cases)),
            "redops": list(dict.fromkeys(case.redop.name for case in cases if case.collective.reduces)),
            "ranks": self.tests[0].machine.ranks,
            "implementations": list(dict.fromkeys(each.implementation for test in self.tests for each in test.results)),
        }


def _noted(test: Test) -> dict[str, Any]:
    return {
        "format": test.format,
        "tool": test.tool,
        "version": test.version,
        "file": test.file,
        "complete": test.complete,
        "sweep": dict(test.sweep),
        "layout": dict(test.layout),
    }


def _numbered(result: Result, number: int) -> Result:
    return replace(result, printed={"test": number} | dict(result.printed)) if isinstance(result, Reported) else result


def grouped(tests: Sequence[Test]) -> list[Imported]:
    """One run if all tests are of one machine, else a run for each; tests without a row are in none."""
    kept = [test for test in tests if test.results]
    if len({test.machine for test in kept}) == 1:
        return [Imported(tuple(kept))]
    return [Imported((test,)) for test in kept]


def remarks(tests: Sequence[Test]) -> Iterator[str]:
    """What the user must know of what was read, one line each."""
    for test in tests:
        for remark in test.remarks:
            yield f"{test.file}: {remark}"
        for reason in test.left_out:
            yield f"{test.file}: left out: {clean(reason, 200)}"
