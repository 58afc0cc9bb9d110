"""Functions that take runs: `collbench.read`, `compare`, `diagnose` and `plot`, which the commands call too."""

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from mimetypes import guess_type
from pathlib import Path
from typing import Annotated

from collbench.algorithms import find
from collbench.analysis.compare import Comparison
from collbench.analysis.compare import compare as compare_runs
from collbench.analysis.diagnose import Diagnosis, RunFacts
from collbench.analysis.diagnose import diagnose as diagnose_curve
from collbench.analysis.fit import measured
from collbench.analysis.machine import placed, sized
from collbench.analysis.matching import selection, unread
from collbench.analysis.verdict import Correctness, Health, status
from collbench.cases import Case
from collbench.errors import UsageError, unknown
from collbench.notebook import Shown
from collbench.requests.declared import NAMES, SHARE, Opt, Request, takes
from collbench.requests.sweeps import split_names
from collbench.requests.words import Names, OfMachine, RunsNodes, Share
from collbench.results import by_key
from collbench.runfile import store
from collbench.runfile.store import Run, cut_off_notes, why_none
from collbench.topology.files import load
from collbench.topology.system import System
from collbench.units import format_list, format_size, parse_share

RunOrPath = Run | Path | str
"""A run, or where its file or the folder of it is."""
Selection = Callable[[Case, str], bool]
"""Whether a case by an implementation is selected."""


def read(path: Path | str) -> Run:
    """Read a run file, or the one in a folder: header, typed results, and whether it is complete.

    `run.results` has a Measurement, Prediction, Reported, Skipped or Failed a row, and others for steps, training and
    explanations: times in seconds, sizes in bytes, rates in bytes per second.  `run.rows()` has them as flat records,
    `run.to_pandas()` and `run.to_arrow()` as a table, where pandas or pyarrow is installed.

    Args:
        path: The run file, or its folder.

    Returns:
        The run.  Rows that cannot be read are warned of, and stand in `run.left_out`.

    Raises:
        RunFileError: This is no run file; the message names file and line.

    >>> import collbench
    >>> run = collbench.read("results/cpu-2-ranks")
    >>> run.header.topology.ranks, run.complete
    (2, True)
    >>> sorted({row["implementation"] for row in run.rows() if row["nbytes"] == 8})[:3]
    ['auto', 'mpi', 'mpi-python']

    """
    return store.read(Path(path))


def as_run(run: RunOrPath) -> Run:
    """Return the run, read from its file if it is a path."""
    return run if isinstance(run, Run) else read(run)


def runs_of(runs: RunOrPath | Sequence[RunOrPath]) -> list[Run]:
    """Return a run or several, read from their files where they are paths."""
    return [as_run(run) for run in ([runs] if isinstance(runs, Run | Path | str) else runs)]


@dataclass(frozen=True)
class CompareRequest(Request):
    """Two runs, and how to compare them."""

    base: Annotated[RunOrPath, Opt("", "The run to compare with.")]
    new: Annotated[RunOrPath, Opt("", "The run to judge.")]
    _: KW_ONLY
    margin: Annotated[Share, Opt("--margin", "Changes up to this share of the time do not matter.", unit=SHARE)] = "5%"
    confidence: Annotated[Share, Opt("--confidence", "Probability that no row is called wrongly.", unit=SHARE)] = "95%"
    assume: Annotated[
        Share | None,
        Opt("--assume", "How much each time of a log without samples varies.", "as neighbouring sizes do", unit=SHARE),
    ] = None
    only: Annotated[
        str | None, Opt("--only", "Rows to compare, such as allreduce,ring-flags,1M..", metavar="WORD[,WORD]")
    ] = None


@takes(CompareRequest)
def compare(request: CompareRequest) -> Comparison:
    """Compare two runs case by case.

    Returns:
        For every case with a time in both runs a row: the ratio of times NEW/BASE with an interval, and a `verdict`
        (slower, faster, same or inconclusive).  `unmatched` has what one of the runs lacks.

    Raises:
        RunFileError: One of them is no run file.
        UsageError: `only` leaves nothing.

    >>> import collbench
    >>> folder = "results/cpu-ab-slowed-ring/"
    >>> comparison = collbench.compare(folder + "as-is", folder + "COLLBENCH_KERNELS=my-kernels")
    >>> [(row.implementation, row.verdict.value) for row in comparison.rows if row.case.nbytes == 2**15]
    [('mpi', 'same'), ('ring-flags', 'slower')]

    """
    shares = parse_share(request.margin, "--margin"), parse_share(request.confidence, "--confidence")
    assumed = None if request.assume is None else parse_share(request.assume, "--assume")
    runs = as_run(request.base), as_run(request.new)
    return compare_runs(*runs, *shares, selected(request.only, runs), assumed)


def selected(only: str | None, runs: Sequence[Run]) -> Selection | None:
    """Return which rows `--only` selects, None for all; UsageError where the runs have none of them."""
    if only is None:
        return None
    every = [(result.case, result.implementation) for run in runs for result in run.cases]
    chosen: Selection = selection(only, dict.fromkeys(name for _, name in every))
    if not any(chosen(case, name) for case, name in every):
        raise UsageError(f"--only {only} leaves nothing of these runs; they hold: {', '.join(contents(runs))}")
    return chosen


def contents(runs: Sequence[Run]) -> list[str]:
    """Return what runs have rows of, in words: collectives, implementations, numbers of ranks, the range of sizes."""
    results = [result for run in runs for result in run.cases]
    words = [result.case.collective.name for result in results] + [result.implementation for result in results]
    sizes = sorted(result.case.nbytes for result in results)
    ranks = [f"{format_list(sorted({result.case.ranks for result in results}))} ranks"] if results else []
    span = [" to ".join(dict.fromkeys(map(format_size, (sizes[0], sizes[-1]))))] if sizes else []
    return [*dict.fromkeys(words), *ranks, *span]


@dataclass(frozen=True)
class Diagnosed(Shown):
    """The curves of a run, each held against what the model expects of its machine."""

    SHOWN = ("verdict", "diagnoses", "correctness")
    TABLE = "diagnoses"
    facts: RunFacts  # what else is known of the machine, and was set
    cut_off: str  # a sentence on a run that stops before its end, or has lines that could not be read, else ""
    curves: tuple[tuple[Diagnosis, System | None], ...]  # with the machine of as many ranks; None if it is not known
    correctness: Correctness  # of all rows, also of what has no curve since no row is right

    @property
    def diagnoses(self) -> list[Diagnosis]:
        """The curves alone."""
        return [diagnosis for diagnosis, _ in self.curves]

    @property
    def verdict(self) -> Health:
        """The worst of all curves; wrong if any row is."""
        found = {diagnosis.verdict for diagnosis in self.diagnoses}
        if self.correctness.faults:
            found.add(Health.WRONG)
        return next(health for health in Health if health in found)

    @property
    def status(self) -> int:
        """The exit status of `diagnose --gate`: 0 passed, 3 slow or wrong, 4 unknown, or with exceptions."""
        verdicts = [(diagnosis.verdict, bool(diagnosis.exceptions)) for diagnosis in self.diagnoses]
        return status([*verdicts, (self.verdict, bool(self.cut_off))])


@dataclass(frozen=True)
class DiagnoseRequest(Request):
    """A run, and what machine it is of."""

    run: Annotated[RunOrPath, Opt("", "A run or its path.")]
    on: Annotated[str | None, OfMachine("What the machine is, a preset or FILE.toml.", "as the run file says")] = None
    _: KW_ONLY
    nodes: RunsNodes = None


@takes(DiagnoseRequest)
def diagnose(request: DiagnoseRequest) -> Diagnosed:
    """Hold every curve of a run against the model: wrong, slow, unknown, faster than modelled, or as expected; and why.

    Returns:
        Of each curve `verdict` is one word, `measured` and `expected` have seconds by size, `exceptions` are sizes far
        above their bands, and `likely()` yields reasons, best explained first, each with what to do.  `correctness`
        counts what is right and names what is not, of a curve and of the run.

    Raises:
        UsageError: The run has no measurements, or the system does not exist.

    >>> import collbench
    >>> diagnosis, machine = collbench.diagnose("results/cpu-2-ranks").curves[0]
    >>> diagnosis.implementation, diagnosis.verdict.value
    ('mpi', 'unknown')

    """
    whole_run = as_run(request.run)
    curves = by_key(measured([whole_run]), lambda row: row.curve)
    correctness = Correctness.of(whole_run.results)
    if not curves and not correctness.faults:
        raise UsageError(f"nothing to diagnose: {why_none([whole_run])}")
    whole, nodes, why = placed(whole_run, request.on, request.nodes)
    facts = RunFacts.of(whole_run, why)
    if whole and why:
        facts = replace(facts, caveats=(*facts.caveats, why), unplaced=why)
    every = by_key((row for row in whole_run.cases if row.case.nbytes), lambda row: row.curve)  # also what is wrong
    diagnosed = []
    for key, rows in curves.items():
        part = sized(whole, rows[0].case.ranks, nodes) if whole else None
        diagnosis = diagnose_curve(rows, part, facts)
        diagnosed.append((replace(diagnosis, correctness=Correctness.of(every[key])), part))
    lost = f"the run was {whole_run.cut_off}" if whole_run.cut_off else unread(whole_run)
    return Diagnosed(facts, lost, tuple(diagnosed), correctness)


@dataclass(frozen=True)
class DrawRequest(Request):
    """Runs, and which figures of them to draw where."""

    runs: Annotated[RunOrPath | Sequence[RunOrPath], Opt("", "A run or several, or their paths.")]
    out: Annotated[
        Path | str, Opt("", "Folder of the figures; or the file of one, by a name that ends in .png, .svg or .pdf.")
    ]
    _: KW_ONLY
    formats: Annotated[
        Sequence[str],
        Opt("--format", "png, svg or pdf, or several.", "as the file is named, else png", metavar="png|svg|pdf"),
    ] = ()
    style: Annotated[str, Opt("--style", "What the figures are for.", metavar="screen|paper|slide")] = "screen"
    views: Annotated[
        Names,
        Opt(
            "--view",
            "What stands along y: bandwidth, latency, ratio (the library's time over this row's), bound (the share of "
            "what the line rate allows); or samples (every sample, around the median of its row).",
            "bandwidth, in a folder latency too",
            unit=NAMES,
        ),
    ] = ""
    impl: Annotated[
        Names, Opt("--impl", "Only these implementations.", "all in the runs", "NAME[,NAME]|library|ladder", NAMES)
    ] = ""
    linear: Annotated[bool, Opt("--linear", "Bandwidth on a linear axis from zero.", "on a logarithmic one")] = False
    lines: Annotated[
        int | str | None,
        Opt(
            "--lines",
            "How many lines have a colour: libraries, then those that are fastest somewhere; the others are grey.",
            metavar="N|all",
            library='How many lines have a colour; "all" or None for all.',
        ),
    ] = 7
    overlay: Annotated[bool, Opt("--overlay", "All topologies in one panel, a colour each.")] = False
    apart: Annotated[bool, Opt("--apart", "Give predictions panels of their own.")] = False
    on: Annotated[
        str | None, OfMachine("What machine measured runs are of, for the view bound.", "as each run file says")
    ] = None
    say: Annotated[
        Callable[[str], object],
        Opt("", "Called with every figure that is left out, and why, and with every run that was cut off."),
    ] = lambda reason: None


def _formats(names: Sequence[str]) -> tuple[str, ...]:
    """Return the formats of figures, each once; UsageError for one that there is not."""
    from collbench.present.figures import FORMATS

    for name in names:
        if name not in FORMATS:
            raise unknown("--format", name, FORMATS)
    return tuple(dict.fromkeys(names))


@takes(DrawRequest)
def plot(request: DrawRequest) -> list[Path]:
    """Draw a run, or several, into a folder or a file.

    Returns:
        The paths of the figures.

    Raises:
        UsageError: Something does not exist, nothing can be drawn, several figures are to go into one file, or that
            or the folder cannot be written to.

    >>> import collbench, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> [path.name for path in collbench.plot("results/cpu-2-ranks", folder, views="latency")]
    ['latency.png']

    """
    from collbench.plots.kinds import PlotRequest, draw, draw_file, lacking  # Matplotlib takes long to import
    from collbench.plots.views import named
    from collbench.present.figures import FORMATS, STYLES

    out, lines = request.out, request.lines
    shown = runs_of(request.runs)
    if request.style not in STYLES:
        raise unknown("--style", request.style, STYLES)
    if lines not in (None, "all") and not (str(lines).isdecimal() and len(str(lines)) < 7):
        raise UsageError(f"--lines {lines!r} is no number of lines; give 0 or more, or all")
    place, formats = Path(out), _formats(request.formats)
    ending = place.suffix[1:] if not place.is_dir() else ""
    is_file = ending in FORMATS
    if guess_type(place.name)[0] and not (is_file or place.is_dir()):  # no folder is called x.jpg, but run-1.5
        raise UsageError(f"--out {out} ends in .{ending}; figures are .{', .'.join(FORMATS)}")
    known = {ending} if is_file else FORMATS
    if set(formats) - {*known}:
        raise UsageError(f"--format {', '.join(formats)}: --out {out} takes {', '.join(known)}; leave --format out")
    usual = ("bandwidth",) if is_file else ("bandwidth", "latency")
    if request.on:
        load(request.on)  # raises for a system that there is not
    figures = PlotRequest(
        named(split_names(request.views) or usual),
        STYLES[request.style],
        machine=request.on,
        overlay=request.overlay,
        apart=request.apart,
        linear=request.linear,
        coloured=sys.maxsize if lines in (None, "all") else int(lines or 0),
        implementations=_shown_implementations(split_names(request.impl), shown),
    )
    reasons: list[str] = []
    try:
        if is_file:
            drawn = draw_file(shown, place, figures, reasons.append)
        else:
            drawn = draw(shown, place, formats or ("png",), figures, reasons.append)
    except OSError as error:
        what = f"cannot write figures to {out}: {error.strerror}"
        raise UsageError(f"{what}; choose another folder with --out") from error
    if not drawn:
        raise UsageError(f"nothing to plot: {'; '.join(reasons) or lacking(shown)}")
    for reason in (*reasons, *cut_off_notes(shown)):
        request.say(reason)
    return drawn


def _shown_implementations(names: Sequence[str], runs: Sequence[Run]) -> Collection[str]:
    """Return the implementations of the runs that are meant, none for all; UsageError for one that they lack."""
    there = list(dict.fromkeys(result.implementation for run in runs for result in run.results))
    groups: dict[str, list[str]] = {"library": [], "ladder": []}
    for name in there:
        if implementation := find(name):
            groups["library" if implementation.library else "ladder"].append(name)
    shown: list[str] = []
    for name in names:
        meant = [*groups.get(name, ()), *([name] if name in there else ())]  # a run may have a name that is a group's
        if not meant:
            choices = dict.fromkeys([*groups, *there])
            raise UsageError(f"no result of {name!r} in these runs; choose from: {', '.join(choices)}")
        shown += meant
    return shown
