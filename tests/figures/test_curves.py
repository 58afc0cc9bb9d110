"""What `collbench plot` draws: panels, lines, bands, scales and files, read back from the figures."""

import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from PIL import Image

from collbench.cases import Case, geometric
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, NONE, REDUCTIONS
from collbench.figures import axes as scales
from collbench.figures import curves, kinds, styles
from collbench.flaws import Mismatch
from collbench.measurement import Failed, Measurement, Prediction, Skipped
from collbench.note import Note, Sharing
from collbench.runs.file import Run
from collbench.runs.header import Header

SIZES = geometric(8, 2**27, 4)
WRONG = Mismatch(rank=1, index=3, chunk=0, got="1", expected="2", wrong=7)


def case(nbytes: int, collective: str = "allreduce", dtype: str = "float", ranks: int = 4, **fields: Any) -> Case:
    meaning = COLLECTIVES[collective]
    redop = REDUCTIONS["sum"] if meaning.reduces else NONE
    return Case(meaning, nbytes, DATATYPES[dtype], redop, fields.get("root", 0), ranks, fields.get("in_place", False))


def measured(implementation: str, of: Case, samples: int = 9, **fields: Any) -> Measurement:
    """Samples spread by 20 % around 2 us plus 10 GB/s; hand-written implementations take twice as long."""
    seconds = (2e-6 + of.nbytes / 10e9) * (1 if implementation in ("nccl", "mpi") else 2)
    spread = tuple(seconds * (0.9 + 0.2 * sample / max(1, samples - 1)) for sample in range(samples))
    return Measurement(of, implementation, fields.pop("platform", "cpu"), 64, spread, **fields)


def run(
    *results: Measurement | Prediction | Skipped | Failed, topology: str = "2 sockets", name: str = "a", **fields: Any
) -> Run:
    return Run(
        Path(f"runs/{name}/run.jsonl"), Header.from_json({"topology": {"name": topology, **fields}}), results, True
    )


def sweep(*implementations: str, sizes: Sequence[int] = SIZES, **fields: Any) -> list[Measurement]:
    return [measured(name, case(size), **fields) for size in sizes for name in implementations]


def predicted(*implementations: str, ranks: int = 4, system: str = "DGX", platform: str = "cpu") -> Run:
    """A run of a model, which expects twice of what is measured, within a third."""
    results = []
    for of in (case(size, ranks=ranks) for size in SIZES):
        for name in implementations:
            seconds = 2 * measured(name, of).typical
            results.append(Prediction(of, name, seconds, seconds / 1.5, seconds * 1.5, "ring", "ll"))
    return run(*results, topology=system, name=system, platform=platform)


def figure(kind: str, *runs: Run, **wanted: Any) -> Figure:
    """That figure of these runs; ticks have no labels yet."""
    return dict(curves.figures(runs, kinds.Wanted(views=[kind], **wanted)))[kind]


def laid_out(kind: str, *runs: Run, **wanted: Any) -> Figure:
    """The same as it will be when written, which takes ten times as long."""
    drawn = figure(kind, *runs, **wanted)
    drawn.draw_without_rendering()
    return drawn


def lines(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    return {str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}


def bands(axes: Axes) -> list[PolyCollection]:
    return [shape for shape in axes.collections if isinstance(shape, PolyCollection) and shape.get_paths()]


def labels(of: Figure) -> list[str]:
    return [text.get_text() for text in of.legends[0].get_texts()]


def ticks(axes: Axes, which: str) -> list[Any]:
    """The tick labels that one sees, once the figure is laid out."""
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    axis = axes.xaxis if which == "x" else axes.yaxis
    shown = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [label for label in shown if label.get_visible() and label.get_text()]


FORMATS = ("png", "svg", "pdf")


def two_lines() -> list[Run]:
    return [run(*sweep("nccl", "ring-ll", sizes=(64, 4096)))]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files of one run of one collective."""
    return kinds.draw(two_lines(), tmp_path_factory.mktemp("figures") / "new", FORMATS)


def test_run_of_one_collective_gives_a_bandwidth_and_a_latency_picture(written: list[Path]) -> None:
    """The file names are plain, and the PNGs can be read and are large enough to print."""
    assert [path.name for path in written] == [
        f"{kind}.{form}" for kind in ("bandwidth", "latency") for form in FORMATS
    ]
    assert sorted(written[0].parent.iterdir()) == sorted(written)
    for path in written[::3]:
        with Image.open(path) as picture:
            picture.verify()
            assert picture.format == "PNG"
            assert min(picture.size) >= 700


def test_without_a_word_a_figure_is_a_png(tmp_path: Path) -> None:
    """In a folder that is made for it."""
    (written,) = kinds.draw(two_lines(), tmp_path / "new", wanted=kinds.Wanted(["latency"]))
    assert written == tmp_path / "new" / "latency.png"
    assert written.exists()


def test_svg_and_pdf_are_what_they_claim(written: list[Path]) -> None:
    """Each figure is written once for each format."""
    _, svg, pdf = written[:3]
    assert b"<svg" in svg.read_bytes()[:1000]
    assert pdf.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("cases", "stems"),
    [
        ([case(64), case(64, "broadcast")], ["allreduce-bandwidth", "broadcast-bandwidth"]),
        ([case(64), case(64, dtype="half")], ["float-bandwidth", "half-bandwidth"]),
        ([case(64), case(64, in_place=True)], ["bandwidth", "in-place-bandwidth"]),
        ([case(64, "reduce"), case(64, "reduce", root=2)], ["bandwidth", "root2-bandwidth"]),
        (
            [case(64), case(64, dtype="half", in_place=True), case(64, "alltoall")],
            ["allreduce-float-bandwidth", "allreduce-half-in-place-bandwidth", "alltoall-bandwidth"],
        ),
    ],
)
def test_file_names_say_what_tells_the_figures_apart(cases: list[Case], stems: list[str]) -> None:
    """And nothing else; no two figures share a name."""
    drawn = [stem for stem, _ in curves.figures([run(*(measured("mpi", one) for one in cases))])]
    assert [stem for stem in drawn if stem.endswith("bandwidth")] == stems
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_title_names_collective_dtype_and_reduction(collective: str) -> None:
    """Every collective can be drawn; one that doesn't reduce has no reduction in its title."""
    title = figure("latency", run(measured("mpi", case(64, collective)))).get_suptitle()
    reduction = ", sum" if COLLECTIVES[collective].reduces else ""
    assert title == f"Latency of {collective} (float{reduction})"


def test_lines_are_the_medians_against_size() -> None:
    """Latency is the median, bandwidth the bus bandwidth, whatever the order of the results in the file."""
    results = sweep("nccl", "ring-flags")
    nccl = [result for result in results if result.implementation == "nccl"]
    shuffled = run(*reversed(results))
    assert lines(figure("latency", shuffled).axes[0])["nccl"] == (list(SIZES), [row.typical for row in nccl])
    assert lines(figure("bandwidth", shuffled).axes[0])["nccl"] == (
        list(SIZES),
        pytest.approx([row.busbw for row in nccl]),
    )


def test_each_topology_and_number_of_ranks_has_its_panel() -> None:
    """With its own title, all on one size axis and one time axis."""
    four = run(*sweep("nccl"), topology="NVSwitch")
    two = run(*(measured("nccl", case(size, ranks=2)) for size in SIZES), topology="NVSwitch", name="b")
    drawn = figure("latency", four, two, run(*sweep("mpi"), topology="PCIe"))
    titles = [axes.get_title(loc="left") for axes in drawn.axes]
    assert titles == ["NVSwitch, 4 ranks", "NVSwitch, 2 ranks", "PCIe, 4 ranks"]
    assert len({axes.get_xlim() for axes in drawn.axes}) == 1
    assert len({axes.get_ylim() for axes in drawn.axes}) == 1


def test_runs_of_one_topology_that_complement_each_other_share_a_panel() -> None:
    """The library measured yesterday and the ladder today are one picture."""
    drawn = figure("latency", run(*sweep("nccl")), run(*sweep("ring-ll"), name="b"))
    assert len(drawn.axes) == 1
    assert set(lines(drawn.axes[0])) == {"nccl", "ring-ll"}


def test_runs_that_measured_the_same_stand_side_by_side_with_their_names() -> None:
    """Neither hides the other."""
    drawn = figure("latency", run(*sweep("nccl"), name="before"), run(*sweep("nccl"), name="after"))
    titles = [axes.get_title(loc="left") for axes in drawn.axes]
    assert titles == ["2 sockets, 4 ranks, before", "2 sockets, 4 ranks, after"]


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 1)), (3, (1, 3)), (5, (2, 3))])
def test_panels_fill_a_grid_whose_columns_end_in_a_labelled_axis(count: int, shape: tuple[int, int]) -> None:
    """No empty panel is left over, and the lowest of each column says what x is."""
    drawn = laid_out(
        "latency", *(run(*sweep("mpi", sizes=(64, 4096)), topology=f"t{number}") for number in range(count))
    )
    assert len(drawn.axes) == count
    grid = drawn.axes[0].get_gridspec()
    assert grid is not None
    assert (grid.nrows, grid.ncols) == shape
    labelled = [bool(axes.get_xlabel()) and bool(ticks(axes, "x")) for axes in drawn.axes]
    assert labelled == [number + shape[1] >= count for number in range(count)]


def test_far_slower_topology_keeps_its_own_bandwidth_scale() -> None:
    """On a linear axis it would be a line along the bottom; comparable ones share theirs, and all a logarithmic one."""
    slow = [
        Measurement(result.case, "mpi", "cpu", 1, tuple(s * 100 for s in result.seconds)) for result in sweep("mpi")
    ]
    fast = run(*sweep("nccl"), topology="NVSwitch")
    apart = figure("bandwidth", fast, run(*slow, topology="network"), linear=True).axes
    alike = figure("bandwidth", fast, run(*sweep("mpi"), topology="network"), linear=True).axes
    both = figure("bandwidth", fast, run(*slow, topology="network")).axes
    assert both[0].get_ylim() == both[1].get_ylim()
    assert apart[0].get_ylim()[1] > 50 * apart[1].get_ylim()[1]
    assert alike[0].get_ylim() == alike[1].get_ylim()


@pytest.mark.parametrize(
    "shared",
    [
        run(*sweep("nccl", platform="gpu", note=Note(shared=Sharing(4, 1)))),
        run(*sweep("nccl", platform="gpu"), shared=True),
        run(*(measured("nccl", case(size, ranks=1)) for size in SIZES)),
    ],
    ids=["note", "topology", "one rank"],
)
def test_without_a_bus_the_bandwidth_is_the_algorithms(shared: Run) -> None:
    """Inside one GPU bus bandwidth means nothing, and with one rank it is zero."""
    axes = figure("bandwidth", shared).axes[0]
    assert axes.get_ylabel() == "algorithm bandwidth"
    algbw = [result.algbw for result in shared.results if isinstance(result, Measurement)]
    assert lines(axes)["nccl"][1] == pytest.approx(algbw)


def test_ranks_that_share_cores_still_have_a_bus() -> None:
    """Oversubscribed processors are slow, but messages pass between ranks."""
    axes = figure("bandwidth", run(*sweep("mpi", note=Note.of("oversubscribed: 4 ranks share 2 cores")))).axes[0]
    assert axes.get_ylabel() == "bus bandwidth"


def test_notes_stand_above_their_panel() -> None:
    """A note on every line stands alone, one on some names them; long ones are wrapped, not cut off."""
    plain, noted = (
        sweep("mpi", note=Note(oversubscribed=True)),
        sweep("ring-ll", note=Note.of("yields " + "after many spins " * 5)),
    )
    assert figure("latency", run(*plain)).axes[0].get_title(loc="left").endswith("\noversubscribed")
    title = figure("latency", run(*plain, *noted)).axes[0].get_title(loc="left")
    assert "mpi: oversubscribed; ring-ll: yields after" in title
    assert max(map(len, title.splitlines())) <= 52


@pytest.mark.parametrize("header", [{}, {"topology": None}, {"topology": {}}])
def test_header_without_a_topology_is_drawn_all_the_same(header: dict[str, Any]) -> None:
    """Files written by other programs may lack it."""
    drawn = figure("latency", Run(Path("a.jsonl"), Header.from_json(header), tuple(sweep("nccl")), complete=True))
    assert drawn.axes[0].get_title(loc="left") == "unknown topology, 4 ranks"


def test_wrong_results_are_not_drawn_but_named() -> None:
    """A number whose check failed never looks like a result."""
    wrong = measured("ring-ll", case(SIZES[-1]), mismatch=WRONG)
    other = [measured("ring-flags", case(size), mismatch=WRONG) for size in SIZES]
    drawn = figure("bandwidth", run(*sweep("nccl"), *sweep("ring-ll", sizes=SIZES[:-1]), wrong, *other))
    axes = drawn.axes[0]
    assert set(lines(axes)) == {"nccl", "ring-ll"}
    assert lines(axes)["ring-ll"][0] == list(SIZES[:-1])
    assert "ring-flags" not in labels(drawn)
    assert axes.get_title(loc="left").endswith("\nring-flags, ring-ll: wrong results not drawn")


def test_nothing_right_gives_no_picture_and_no_folder(tmp_path: Path) -> None:
    """Skipped, failed and wrong rows, and no rows at all, leave nothing behind."""
    rows = (
        Skipped(case(64), "nvls", "gpu", "needs NVSwitch"),
        Failed(case(64), "nccl", "gpu", "hung"),
        measured("ring-ll", case(64), mismatch=WRONG),
    )
    assert kinds.draw([run(*rows), run()], tmp_path / "new") == []
    assert kinds.draw([], tmp_path / "new") == []
    assert not (tmp_path / "new").exists()


def test_band_is_the_interval_of_the_median() -> None:
    """It reaches from the lower to the upper end at every size, and the legend explains it."""
    results = sweep("nccl")
    drawn = figure("latency", run(*results))
    (band,) = bands(drawn.axes[0])
    corners = {(round(x), y) for x, y in band.get_paths()[0].vertices.tolist()}  # type: ignore[union-attr]
    assert corners == {(result.case.nbytes, end) for result in results for end in result.interval}
    assert labels(drawn) == ["nccl", "95 % interval"]


def test_without_an_interval_there_is_no_band() -> None:
    """Five samples don't bound the median at 95 %."""
    drawn = figure("bandwidth", run(*sweep("nccl", samples=5)))
    assert not bands(drawn.axes[0])
    assert labels(drawn) == ["nccl"]


@pytest.mark.parametrize("samples", [1, 9])
def test_single_size_is_a_point_with_its_interval(samples: int) -> None:
    """The tick under it is the size; where there is an interval it is a bar."""
    drawn = laid_out("latency", run(*sweep("nccl", sizes=(96,), samples=samples)))
    axes = drawn.axes[0]
    bars = [bar for bar in axes.collections if isinstance(bar, LineCollection)]
    (result,) = sweep("nccl", sizes=(96,), samples=9)
    assert [text.get_text() for text in ticks(axes, "x")] == ["96 B"]
    assert lines(axes)["nccl"][0] == [96]
    if samples == 9:
        assert tuple(bars[0].get_segments()[0][:, 1]) == result.interval


def test_eleven_implementations_with_thousands_of_samples_stay_apart() -> None:
    """Every implementation has its line and legend entry, and its own colour where all are to have one."""
    crowd = run(*sweep(*reversed(styles.LOOKS), sizes=(64, 4096), samples=3000))
    drawn = figure("bandwidth", crowd, coloured=len(styles.LOOKS))
    assert list(lines(drawn.axes[0])) == list(styles.LOOKS)
    assert sorted(labels(drawn)) == sorted([*styles.LOOKS, "95 % interval (right: 90 %)"])
    assert len({line.get_color() for line in drawn.axes[0].lines}) == len(styles.LOOKS)
    assert len({line.get_marker() for line in drawn.axes[0].lines}) == len(styles.LOOKS)


def test_known_implementation_always_looks_the_same() -> None:
    """Whatever else is in the figure; so figures can be read side by side."""
    crowd = styles.looks([*styles.LOOKS, "rccl", "osu", "tree"])
    assert all(styles.looks([name])[name] == crowd[name] for name in styles.LOOKS)


def test_unknown_implementations_get_looks_of_their_own() -> None:
    """The same on each call, in colours of their own while there are any, and never twice the same."""
    names = [f"tree-{fanout}" for fanout in range(40)]
    chosen = styles.looks(names)
    assert chosen == styles.looks(reversed(names))
    assert len(set(chosen.values())) == len(names)
    assert len({look.color for look in styles.looks([*names[:5], "nccl", "mpi"]).values()}) == 7


@pytest.mark.parametrize(
    ("least", "most", "room", "expected"),
    [
        (1024, 8192, 6, [1024, 2048, 4096, 8192]),
        (8, 2**27, 8, [2**exponent for exponent in (4, 8, 12, 16, 20, 24)]),
        (8, 2**33, 4, [2**10, 2**20, 2**30]),
        (1, 2**40, 6, [1, 2**10, 2**20, 2**30, 2**40]),
        (96, 96, 6, [96]),
        (1000, 1900, 6, [1000, 1900]),
        (1, 1, 6, [1]),
    ],
)
def test_size_ticks_are_few_round_and_evenly_spaced(least: int, most: int, room: int, expected: list[int]) -> None:
    """1 KiB, 1 MiB and 1 GiB are among them where every tenth power is marked."""
    assert scales.size_ticks(least, most, room) == expected


@pytest.mark.parametrize("kind", ["bandwidth", "latency"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("sizes", [SIZES, (64,), (1000, 1900), (1, 2**36)], ids=["wide", "one", "near", "far"])
def test_tick_labels_do_not_overlap(kind: str, count: int, sizes: tuple[int, ...]) -> None:
    """Nor does any axis stay without labels."""
    drawn = laid_out(kind, *(run(*sweep("mpi", sizes=sizes), topology=f"t{number}") for number in range(count)))
    across = [text.get_window_extent() for text in ticks(drawn.axes[0], "x")]
    upwards = [text.get_window_extent() for text in ticks(drawn.axes[0], "y")]
    assert across
    assert len(upwards) >= 3
    assert all(left.x1 < right.x0 for left, right in pairwise(across))
    assert all(below.y1 < above.y0 for below, above in pairwise(upwards))


def test_ticks_are_written_in_units_for_people() -> None:
    """Sizes in binary units, times in us and ms, rates in MB/s and GB/s."""
    results = run(*sweep("nccl"))
    latency, bandwidth = laid_out("latency", results).axes[0], laid_out("bandwidth", results).axes[0]
    assert [text.get_text() for text in ticks(latency, "x")] == [
        "16 B",
        "256 B",
        "4 KiB",
        "64 KiB",
        "1 MiB",
        "16 MiB",
    ]
    assert [text.get_text() for text in ticks(latency, "y")] == ["10 us", "100 us", "1 ms", "10 ms"]
    assert [text.get_text() for text in ticks(bandwidth, "y")] == ["10 MB/s", "100 MB/s", "1 GB/s", "10 GB/s"]
    linear = laid_out("bandwidth", results, linear=True).axes[0]
    assert [text.get_text() for text in ticks(linear, "y")][:3] == ["0", "2 GB/s", "4 GB/s"]
    assert latency.get_xscale() == latency.get_yscale() == bandwidth.get_xscale() == bandwidth.get_yscale() == "log"


@pytest.mark.parametrize("name", ["nccl", "an-implementation-with-quite-a-long-name"])
def test_legend_covers_no_panel(name: str) -> None:
    """It stands beside the axes."""
    drawn = laid_out("bandwidth", run(*sweep(name, "mpi")), run(*sweep(name), topology="PCIe"))
    legend = drawn.legends[0].get_window_extent()
    assert all(axes.get_window_extent().x1 <= legend.x0 for axes in drawn.axes)


def test_same_runs_give_the_same_bytes(written: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the user has configured Matplotlib otherwise."""
    import matplotlib

    monkeypatch.setitem(matplotlib.rcParams, "font.size", 25.0)
    monkeypatch.setitem(matplotlib.rcParams, "axes.facecolor", "red")
    again = kinds.draw(two_lines(), tmp_path / "again", FORMATS)
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in again]
    assert matplotlib.rcParams["font.size"] == 25


def test_predictions_are_dashed_and_hollow_within_their_band() -> None:
    """In a figure that says so once, not on each line."""
    drawn = figure("latency", predicted("nccl", "one-shot-ll"))
    assert drawn.get_suptitle() == "Predicted latency of allreduce (float, sum)"
    assert labels(drawn) == ["one-shot-ll", "nccl", "nine in ten, predicted"]
    for line in drawn.axes[0].lines:
        assert (line.get_linestyle(), line.get_markerfacecolor()) == ("--", "white")
        assert line.get_color() == styles.LOOKS[str(line.get_label())].color
    band, _ = bands(drawn.axes[0])
    corners = {(round(x), y) for x, y in band.get_paths()[0].vertices.tolist()}  # type: ignore[union-attr]
    nccl = [result for result in predicted("nccl").results if isinstance(result, Prediction)]
    assert corners == {(row.case.nbytes, end) for row in nccl for end in (row.low, row.high)}


@pytest.mark.parametrize("order", [1, -1])
def test_an_expectation_lies_over_what_was_measured_on_as_many_ranks(order: int) -> None:
    """Both lines in one panel in one colour, whichever run is named first, and what was expected of which system."""
    runs = [run(*sweep("nccl", "ring-ll"), platform="cpu"), predicted("nccl")]
    drawn = figure("latency", *runs[::order])
    (axes,) = drawn.axes
    assert set(lines(axes)) == {"nccl", "ring-ll", "nccl, predicted"}
    assert labels(drawn) == ["nccl, predicted", "ring-ll", "nccl", "95 % interval", "nine in ten, predicted"]
    assert len({line.get_color() for line in axes.lines if "nccl" in str(line.get_label())}) == 1
    assert axes.get_title(loc="left") == "2 sockets, 4 ranks\npredicted: DGX"
    assert drawn.get_suptitle() == "Latency of allreduce (float, sum)"
    measured_ones = [result.typical for result in sweep("nccl")]
    assert lines(axes)["nccl, predicted"][1] == pytest.approx([2 * measured_one for measured_one in measured_ones])
    assert lines(axes)["nccl"][1] == measured_ones


def test_an_expectation_lies_over_every_run_that_it_fits() -> None:
    """Yesterday's and today's."""
    before, after = (run(*sweep("nccl"), name=name, platform="cpu") for name in ("before", "after"))
    drawn = figure("latency", before, after, predicted("nccl"))
    assert [set(lines(axes)) for axes in drawn.axes] == [{"nccl", "nccl, predicted"}] * 2


@pytest.mark.parametrize(
    ("expectations", "apart"),
    [
        ([predicted("nccl", ranks=8)], False),
        ([predicted("nccl", platform="gpu")], False),
        ([predicted("nccl")], True),
        ([predicted("nccl"), predicted("nccl", system="HGX")], False),
    ],
    ids=["other ranks", "other hardware", "asked for", "two systems"],
)
def test_an_expectation_of_something_else_has_a_panel_of_its_own(expectations: list[Run], apart: bool) -> None:
    """Nothing is laid over what it does not speak of, nor where it is unclear which one is meant."""
    drawn = figure("latency", run(*sweep("nccl"), platform="cpu"), *expectations, apart=apart)
    first, *others = (set(lines(axes)) for axes in drawn.axes)
    assert first == {"nccl"}
    assert len(others) == len(expectations)
    assert all(other <= {"nccl", "nccl, predicted"} for other in others)


def test_matplotlib_is_imported_at_the_first_figure_and_pyplot_never(tmp_path: Path) -> None:
    """Commands that draw nothing start fast, and drawing leaves a program's own figures alone."""
    program = f"""
import sys
from pathlib import Path
from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, NONE
from collbench.figures import axes, kinds
from collbench.measurement import Measurement
from collbench.runs.file import Run
from collbench.runs.header import Header

case = Case(COLLECTIVES["broadcast"], 64, DATATYPES["float"], NONE, 0, 2, False)
results = (Measurement(case, "mpi", "cpu", 1, (1e-6,)),)
run = Run(Path("a.jsonl"), Header(), results, True)
assert kinds.draw([], Path({str(tmp_path)!r})) == []
assert "matplotlib" not in sys.modules
assert len(kinds.draw([run], Path({str(tmp_path)!r}))) == 2
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_legend_names_the_library_and_no_line_mixes_two(tmp_path: Path) -> None:
    """Two runs with an mpi each, of two libraries: two lines, also where their sizes would make one."""
    small, large = SIZES[:6], SIZES[6:]
    rows = {
        "MPICH 5.0.2": [measured("mpi", case(size), library="MPICH 5.0.2") for size in small],
        "Open MPI 5.0.11": [measured("mpi", case(size), library="Open MPI 5.0.11") for size in large],
    }
    runs = [Run(tmp_path / name / "run.jsonl", Header(), tuple(results), True, 0) for name, results in rows.items()]
    (_, figure), *_ = curves.figures(runs)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"mpi: MPICH 5.0.2", "mpi: Open MPI 5.0.11"} <= set(names)
    lines = [line for axes in figure.axes for line in axes.get_lines() if str(line.get_label()).startswith("mpi")]
    assert sorted(len(line.get_xdata()) for line in lines) == sorted((len(small), len(large)))  # type: ignore[arg-type]
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 2
