"""`osu_latency`, `osu_allreduce`, `osu_iallreduce` and their like: a sweep with the options and the table of OSU.

The table is the one that `collbench export --to osu` writes, row by row as results arrive.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from collbench.errors import UsageError

if TYPE_CHECKING:
    from collbench.cases import Sweep
    from collbench.formats.osu_tests import OsuKind
    from collbench.measure.session import Session
    from collbench.results import Result

PREFIX = "osu_"
_BEGUN = "i"  # before the name of a collective: its non-blocking form


def programs() -> list[str]:
    """What OSU calls its programs that are here."""
    from collbench.formats.osu_tests import PROGRAMS

    blocking = [f"{PREFIX}{name}" for name in reversed(PROGRAMS)]
    return [*blocking, *(f"{PREFIX}{_BEGUN}{name}" for name, kind in reversed(PROGRAMS.items()) if _begins(kind))]


def _begins(kind: "OsuKind") -> bool:
    """Whether there is a non-blocking form of it with an overlap."""
    return not kind.own and kind.measured.sized


def osu(name: str) -> click.Command | None:
    """The command of a program's name; None if OSU has none of that name here."""
    if not name.startswith(PREFIX) or name not in programs():
        return None
    from collbench.formats.osu_tests import PROGRAMS

    bare = name.removeprefix(PREFIX)
    nonblocking = bare not in PROGRAMS
    return _command(PROGRAMS[bare.removeprefix(_BEGUN) if nonblocking else bare], name, nonblocking)


def _command(kind: "OsuKind", name: str, nonblocking: bool) -> click.Command:
    from collbench.cli._osu_options import osu_options

    what = f"{kind.measured.name} beside computing" if nonblocking else kind.measured.name
    carry_out = _carry_out_begun if nonblocking else _carry_out
    return click.Command(
        name,
        params=osu_options(kind, nonblocking),
        callback=lambda **options: carry_out(kind, options),
        help=f"Measure {what} as OSU's {name} does, and print its table.\n\n"
        "Its options keep their meaning.  Nothing is stored unless --out says where.",
        epilog=f"\b\nFor example:\n  collbench {name} -m 8:64K",
        context_settings={"show_default": True},
    )


def _sweep(
    kind: "OsuKind", words: dict[str, Any], message_size: str | None, joined: tuple[int, int] | None
) -> "tuple[str, Sweep]":
    """Platform and sweep by one library; the sizes of some tests take the number of ranks, which comes first."""
    from collbench.api.wanted import make_sweep
    from collbench.cli._osu_options import bounds

    platform, small = make_sweep(words | {"maxbytes": "8"}, joined)
    first, last = bounds(kind, message_size, small.ranks, small.dtypes[0].itemsize)
    sizes = {"minbytes": str(first), "maxbytes": str(last), "stepfactor": 2.0}
    _, sweep = make_sweep(words | sizes | {"on": platform}, joined)
    return platform, replace(sweep, implementations=sweep.implementations[:1])


def _carry_out(kind: "OsuKind", options: dict[str, Any]) -> int:
    from collbench.cli import _osu_options
    from collbench.cli._carried_out import carried_out
    from collbench.host.launcher import launched
    from collbench.measure.session import Session

    joined = launched()
    said = list(_osu_options.remarks(options))
    platform, sweep = _sweep(kind, _osu_options.as_sweep(kind, options), options["message_size"], joined)
    session = Session(platform, sweep, joined, options["out"])
    return carried_out(
        session, lambda: _show(session, kind, options["full"]), lambda: _close(session), said, options["quiet"]
    )


def _show(session: "Session", kind: "OsuKind", full: bool) -> None:
    """All rows; every process takes part, and one prints."""
    from collbench.formats.exported import signature
    from collbench.formats.osu_write import opening, row
    from collbench.results import Measurement, Untimed

    begun = False
    for result in session.run():
        if not session.leader:
            continue
        reason = result.reason if isinstance(result, Untimed) else ""
        if isinstance(result, Measurement):
            if not begun:
                nccl = result.implementation == "nccl"
                click.echo("\n".join([signature(result), *opening(kind, nccl, result.case, full)]))
                begun = True
            reason = result.wrong
        if isinstance(result, Measurement) and not reason:
            click.echo(row(kind, result, full))
        else:
            click.echo(f"# {result.case.nbytes // kind.messages(result.case.ranks)} B: {reason}")


def _close(session: "Session") -> None:
    if session.path:
        click.echo(f"run file: {session.path}", err=True)


def _carry_out_begun(kind: "OsuKind", options: dict[str, Any]) -> int:
    from collbench.cli import _osu_options
    from collbench.cli._carried_out import carried_out
    from collbench.cli._step_sessions import refuse_launcher
    from collbench.measure.matched import Matched, matching
    from collbench.measure.session import Session

    refuse_launcher(f"{PREFIX}{_BEGUN}{kind.program}")
    said = list(_osu_options.remarks(options))
    words = _osu_options.as_sweep(kind, options)
    if words["on"] not in ("auto", "cpu"):
        raise UsageError(
            f"{PREFIX}{_BEGUN}{kind.program} is of MPI on CPUs; leave --on and -d out, or see collbench step overlap"
        )
    platform, sweep = _sweep(kind, words | {"on": "cpu"}, options["message_size"], None)
    schedule = "polled" if options["num_test_calls"] else "nonblocking"
    steps = matching(platform, sweep)
    ways = tuple(way for step in steps.values() for way in Matched.ways(step, schedule))
    session = Session(Matched(platform, sweep, steps, schedule), replace(sweep, steps=ways), None, options["out"])
    return carried_out(session, lambda: _show_begun(session, kind), lambda: _close(session), said, options["quiet"])


def _show_begun(session: "Session", kind: "OsuKind") -> None:
    """A row a size, once all its steps are there."""
    from collbench.formats.osu_nonblocking import PARTS, opening, row

    of_size: list[Result] = []
    for result in session.run():
        if not session.results[1:]:
            click.echo("\n".join(opening(kind, result.case)))
        of_size.append(result)
        if len(of_size) == PARTS:
            click.echo(row(kind, of_size))
            of_size = []
