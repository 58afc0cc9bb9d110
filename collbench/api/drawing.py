"""Figures of runs, as `collbench plot` draws them."""

import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from collbench.algorithms import find
from collbench.api.reading import RunOrPath, as_run
from collbench.errors import UsageError, unknown
from collbench.plots.kinds import Wanted, draw, lacking
from collbench.plots.style import STYLES
from collbench.plots.views import named
from collbench.runfile.store import Run, cut_off_notes
from collbench.topology.files import load


def plot(
    runs: RunOrPath | Sequence[RunOrPath],
    out: Path | str,
    *,
    formats: Sequence[str] = ("png",),
    style: str = "screen",
    views: str | Sequence[str] = ("bandwidth", "latency"),
    impl: str | Sequence[str] = "",
    linear: bool = False,
    lines: int | None = 7,
    overlay: bool = False,
    apart: bool = False,
    system: str | None = None,
    say: Callable[[str], object] = lambda reason: None,
) -> list[Path]:
    """Draw a run, or several, into the folder `out`, and say which files were written.

    Options are those of `collbench plot`: `formats` png, svg or pdf; `views` what stands along y; `lines` how many have
    a colour, None for all; `system` what machine measured runs are of.  `say` is told of every figure that has to be
    left out, and why, and of every run that was cut off.

    Errors: UsageError for what does not exist, where nothing can be drawn, and for a folder that cannot be written to.

    >>> import collbench, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> [path.name for path in collbench.plot("results/cpu-2-ranks", folder, views="latency")]
    ['latency.png']
    """
    read = [as_run(run) for run in ([runs] if isinstance(runs, Run | Path | str) else runs)]
    wanted = _wanted(style, _words(views), system)
    wanted = wanted._replace(overlay=overlay, apart=apart, linear=linear)
    wanted = wanted._replace(coloured=sys.maxsize if lines is None else lines)
    wanted = wanted._replace(implementations=_implementations(_words(impl), read) if impl else ())
    reasons: list[str] = []
    try:
        figures = draw(read, Path(out), tuple(dict.fromkeys(formats)), wanted, reasons.append)
    except OSError as error:
        what = f"cannot write figures to {out}: {error.strerror}"
        raise UsageError(f"{what}; choose another folder with --out") from error
    if not figures:
        raise UsageError(f"nothing to plot: {'; '.join(reasons) or lacking(read)}")
    for reason in (*reasons, *cut_off_notes(read)):
        say(reason)
    return figures


def _words(words: str | Sequence[str]) -> list[str]:
    return [word.strip() for word in words.split(",")] if isinstance(words, str) else list(words)


def _wanted(style: str, views: Sequence[str], machine: str | None) -> Wanted:
    """What to draw; UsageError for a style, a view or a system that there is not."""
    if style not in STYLES:
        raise unknown("--style", style, STYLES)
    wanted = named(iter(views))
    if machine:
        load(machine)
    return Wanted(wanted, STYLES[style], machine=machine)


def _implementations(words: Sequence[str], runs: Sequence[Run]) -> Collection[str]:
    """Those of the runs that are meant; UsageError, listing what there is, for one that is not in them."""
    there = list(dict.fromkeys(result.implementation for run in runs for result in run.results))
    groups = {
        "library": [name for name in there if (way := find(name)) and way.library],
        "ladder": [name for name in there if (way := find(name)) and not way.library],
    }
    chosen_ones: list[str] = []
    for word in words:
        meant = [*groups.get(word, ()), *([word] if word in there else ())]  # a style may be called as a group is
        if not meant:
            choices = dict.fromkeys([*groups, *there])
            raise UsageError(f"no result of {word!r} in these runs; choose from: {', '.join(choices)}")
        chosen_ones += meant
    return chosen_ones
