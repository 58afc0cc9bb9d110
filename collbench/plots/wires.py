"""The figure of narrower wires: time saved against the fastest that is exact, over the error that each introduces."""

from collections.abc import Sequence

from collbench.analysis.wires import Tradeoff, tradeoffs
from collbench.plots.kinds import Kind, Named, PlotRequest, run_by_run
from collbench.present.figures import SCREEN, Figure, looks, new_figure, style
from collbench.results import Measurement
from collbench.runfile.store import Run
from collbench.units import format_size


def figures(run: Run, request: PlotRequest) -> Named:
    """Yield a figure for each kind of case in which wire formats and an exact implementation were measured."""
    found = [one for one in tradeoffs(run.results) if one.study and one.gain(one.exact) is not None]
    found = [one for one in found if request.shows(one.name)]
    for kind in dict.fromkeys(one.case.kind for one in found):
        stem = f"wires-{kind.collective.name}-{kind.dtype.name}-{kind.redop.name}{'-in-place' * kind.in_place}"
        yield stem, figure([one for one in found if one.case.kind == kind])


@style()
def figure(found: Sequence[Tradeoff]) -> Figure:
    """Draw a mark for the RMS error of single rounds, and a hollow mark for the bias of many with feedback."""
    from matplotlib.ticker import LogLocator, NullFormatter

    chosen = looks(one.name for one in found)
    drawn = new_figure(SCREEN.width(1), 4.6)
    axes = drawn.subplots()
    for one in found:
        look, gain = chosen[one.name], one.gain(one.exact)
        assert one.study
        assert gain
        axes.plot([one.study.plain.rms], [gain], look.marker, color=look.color, label=one.name)
        axes.plot([one.study.plain.bias], [gain], look.marker, color=look.color, alpha=0.4)
        axes.plot([one.study.fed.bias], [gain], look.marker, color=look.color, fillstyle="none")

    # Above this line a wire pays.
    axes.axhline(1, color="0.6", linewidth=1)
    # Decades of error, and few ratios in plain figures: texts are not read as formulas.
    axes.set(xscale="log", yscale="log")
    axes.xaxis.set_major_locator(LogLocator(numticks=8))
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 6, 8), numticks=8))
    axes.yaxis.set_major_formatter("{x:g}x")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("error against exact sums: RMS (full), bias (pale), bias with feedback (hollow)")
    axes.set_ylabel("time of the fastest exact one / the wire's")
    axes.set_title(f"{found[0].case.title}, {format_size(found[0].case.nbytes)}: above 1 the wire pays")
    drawn.legend(loc="outside lower left", ncols=3)
    return drawn


KINDS = {
    "wires": Kind(
        order=20,
        rows=(Measurement,),
        needs="narrow wire formats whose error was studied, and an implementation that is exact",
        figures=run_by_run(figures),
    )
}
