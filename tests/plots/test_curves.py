"""Curves over message sizes: panels, lines, bands, scales, colours and files, read back from the figures."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from collbench.plots import curves, kinds
from collbench.plots.panels import only, panels
from collbench.present import figures as styles
from collbench.present.figures import COLOURED, MUTED
from collbench.results import Measurement, Note, Prediction
from collbench.results.disturbed import Scheduling
from collbench.results.facts import Sharing
from tests.plots.made_up_sweeps import (
    SIZES,
    WRONG,
    bands,
    case,
    corners,
    drawn,
    labels,
    laid_out,
    lines,
    measured,
    predicted,
    run,
    sweep,
    ticks,
    title,
)


def test_figures_are_written_in_every_format_and_again_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, formats = [run(*sweep("nccl", "ring-ll", sizes=(64, 4096)))], ("png", "svg", "pdf")
    written = kinds.draw(runs, tmp_path / "new", formats)
    assert [path.name for path in written] == [
        f"{kind}.{form}" for kind in ("bandwidth", "latency") for form in formats
    ]
    assert sorted((tmp_path / "new").iterdir()) == sorted(written)
    png, svg, pdf = written[:3]
    with Image.open(png) as picture:
        assert picture.format == "PNG"
        assert min(picture.size) >= 700
    assert b"<svg" in svg.read_bytes()[:1000]
    assert pdf.read_bytes().startswith(b"%PDF")
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 25.0)
    monkeypatch.setitem(matplotlib.rcParams, "axes.facecolor", "red")
    (again,) = kinds.draw(runs, tmp_path / "again", request=kinds.PlotRequest(["bandwidth"]))
    assert again.name == "bandwidth.png", "the format that nobody needs to ask for"
    assert again.read_bytes() == png.read_bytes()
    assert matplotlib.rcParams["font.size"] == 25


def test_file_names_say_what_tells_the_figures_apart_and_nothing_else() -> None:
    for cases, stems in (
        ([case(64), case(64, "broadcast")], ["allreduce-bandwidth", "broadcast-bandwidth"]),
        ([case(64), case(64, dtype="half")], ["float-bandwidth", "half-bandwidth"]),
        ([case(64), replace(case(64, in_place=True), unalign=4)], ["bandwidth", "in-place-unalign4-bandwidth"]),
        ([case(64, "reduce"), case(64, "reduce", root=2)], ["bandwidth", "root2-bandwidth"]),
        (
            [case(64), case(64, dtype="half", in_place=True), case(64, "alltoall")],
            ["allreduce-float-bandwidth", "allreduce-half-in-place-bandwidth", "alltoall-bandwidth"],
        ),
    ):
        found = [stem for stem, _ in curves.figures([run(*(measured("mpi", one) for one in cases))])]
        assert [stem for stem in found if stem.endswith("bandwidth")] == stems
        assert len(set(found)) == len(found), stems


def test_lines_are_medians_or_bus_bandwidths_against_size_whatever_the_order_of_rows() -> None:
    results = sweep("nccl", "ring-flags")
    nccl = [result for result in results if result.implementation == "nccl"]
    shuffled = run(*reversed(results))
    assert lines(drawn("latency", shuffled).axes[0])["nccl"] == (list(SIZES), [row.typical for row in nccl])
    rates = lines(drawn("bandwidth", shuffled).axes[0])["nccl"]
    assert rates == (list(SIZES), pytest.approx([row.busbw for row in nccl]))


def test_each_topology_number_of_ranks_and_repetition_has_its_panel() -> None:
    two = run(*(measured("nccl", case(size, ranks=2)) for size in SIZES), topology="NVSwitch", name="b")
    figure = drawn("latency", run(*sweep("nccl"), topology="NVSwitch"), two, run(*sweep("mpi"), topology="PCIe"))
    assert [*map(title, figure.axes)] == ["NVSwitch, 4 ranks", "NVSwitch, 2 ranks", "PCIe, 4 ranks"]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1
    again = drawn("latency", run(*sweep("nccl"), name="before"), run(*sweep("nccl"), name="after"))
    assert [*map(title, again.axes)] == ["2 sockets, 4 ranks, before", "2 sockets, 4 ranks, after"]
    (axes,) = drawn("latency", run(*sweep("nccl")), run(*sweep("ring-ll"), name="b")).axes
    assert set(lines(axes)) == {"nccl", "ring-ll"}, "runs that complement each other share a panel"


def test_without_a_bus_the_bandwidth_is_the_algorithms() -> None:
    for why, shared in {
        "note": run(*sweep("nccl", platform="gpu", note=Note(shared=Sharing(4, 1)))),
        "topology": run(*sweep("nccl", platform="gpu"), shared=True),
        "one rank": run(*(measured("nccl", case(size, ranks=1)) for size in SIZES)),
    }.items():
        axes = drawn("bandwidth", shared).axes[0]
        assert axes.get_ylabel() == "algorithm bandwidth", why
        algbw = [result.algbw for result in shared.results if isinstance(result, Measurement)]
        assert lines(axes)["nccl"][1] == pytest.approx(algbw), why
    crowded = run(*sweep("mpi", note=Note.of("oversubscribed: 4 ranks share 2 cores")))
    assert drawn("bandwidth", crowded).axes[0].get_ylabel() == "bus bandwidth", "messages still pass between ranks"


def test_the_caption_says_once_what_nccl_lacks_where_ranks_share_a_gpu() -> None:
    sharing = Note(shared=Sharing(4, 1))
    nccl = sweep("nccl", platform="gpu", note=sharing | Note.of("NCCL_MAX_CTAS=32"))
    rest = [*sweep("ring-ll", platform="gpu", note=sharing), *sweep("auto", platform="gpu", note=sharing)]
    for view in ("bandwidth", "ratio", "latency"):
        words = title(drawn(view, run(*nccl, *rest, topology="4 ranks sharing 1 x H100")).axes[0])
        place, *caption = words.split("\n")
        assert place == "4 ranks sharing 1 x H100", view
        assert " ".join(caption).startswith("when ranks share a GPU, nccl runs without NVLS"), view
        assert " ".join(caption).endswith(" NCCL_MAX_CTAS=32"), view
    (row,) = panels([run(*nccl, *rest)]).values()
    (panel,) = only(row, {"ring-ll"})
    (remark,) = panel.remarks
    assert remark.endswith("NCCL_MAX_CTAS=32")


def test_notes_stand_above_their_panel_and_are_wrapped() -> None:
    plain = sweep("mpi", note=Note(oversubscribed=True))
    noted = sweep("ring-ll", note=Note.of("yields " + "after many spins " * 5))
    assert title(drawn("latency", run(*plain)).axes[0]).endswith("\noversubscribed")
    words = title(drawn("latency", run(*plain, *noted)).axes[0])
    assert "mpi: oversubscribed; ring-ll: yields after" in words
    assert max(map(len, words.splitlines())) <= 52


def test_wrong_results_are_not_drawn_but_named() -> None:
    wrong = measured("ring-ll", case(SIZES[-1]), mismatch=WRONG)
    other = [measured("ring-flags", case(size), mismatch=WRONG) for size in SIZES]
    figure = drawn("bandwidth", run(*sweep("nccl"), *sweep("ring-ll", sizes=SIZES[:-1]), wrong, *other))
    axes = figure.axes[0]
    assert set(lines(axes)) == {"nccl", "ring-ll"}
    assert lines(axes)["ring-ll"][0] == list(SIZES[:-1])
    assert "ring-flags" not in labels(figure)
    assert title(axes).endswith("\nring-flags, ring-ll: wrong results not drawn")


def test_a_band_is_the_interval_of_the_median_where_there_is_one() -> None:
    results = sweep("nccl")
    figure = drawn("latency", run(*results))
    (band,) = bands(figure.axes[0])
    assert corners(band) == {(result.case.nbytes, end) for result in results for end in result.interval}
    assert labels(figure) == ["nccl", "95 % interval"]
    five = drawn("bandwidth", run(*sweep("nccl", samples=5)))
    assert not bands(five.axes[0])
    assert labels(five) == ["nccl"]


def test_an_implementation_always_looks_the_same_and_unknown_ones_never_alike() -> None:
    crowd = styles.looks([*styles.LOOKS, "rccl", "osu", "tree"])
    assert all(styles.looks([name])[name] == crowd[name] for name in styles.LOOKS)
    names = [f"tree-{fanout}" for fanout in range(40)]
    chosen = styles.looks(names)
    assert chosen == styles.looks(reversed(names))
    assert len(set(chosen.values())) == len(names)
    assert len({look.color for look in styles.looks([*names[:5], "nccl", "mpi"]).values()}) == 7


def test_ticks_are_written_in_units_for_people() -> None:
    results = run(*sweep("nccl"))
    latency, bandwidth = laid_out("latency", results).axes[0], laid_out("bandwidth", results).axes[0]
    for axes, which, expected in (
        (latency, "x", ["16 B", "256 B", "4 KiB", "64 KiB", "1 MiB", "16 MiB"]),
        (latency, "y", ["10 us", "100 us", "1 ms", "10 ms"]),
        (bandwidth, "y", ["10 MB/s", "100 MB/s", "1 GB/s", "10 GB/s"]),
    ):
        assert [text.get_text() for text in ticks(axes, which)][: len(expected) + 1] == expected
    assert latency.get_xscale() == latency.get_yscale() == bandwidth.get_xscale() == bandwidth.get_yscale() == "log"


def test_predictions_are_dashed_and_hollow_within_their_band() -> None:
    figure = drawn("latency", predicted("nccl", "one-shot-ll"))
    assert figure.get_suptitle() == "Predicted latency of allreduce (float, sum)"
    assert labels(figure) == ["one-shot-ll", "nccl", "nine in ten, predicted"]
    for line in figure.axes[0].lines:
        assert (line.get_linestyle(), line.get_markerfacecolor()) == ("--", "white")
        assert line.get_color() == styles.LOOKS[str(line.get_label())].color
    band, _ = bands(figure.axes[0])
    nccl = [result for result in predicted("nccl").results if isinstance(result, Prediction)]
    assert corners(band) == {(row.case.nbytes, end) for row in nccl for end in (row.low, row.high)}


def test_the_title_says_what_was_surely_the_fastest() -> None:
    small = sweep("mpi", sizes=SIZES[:4]) + sweep("ring-ll", sizes=SIZES[:4])
    large = [measured("mpi", case(size)) for size in SIZES[4:]]
    large += [replace(row, implementation="ring-ll", seconds=tuple(t / 9 for t in row.seconds)) for row in large]
    both = run(*small, *large, platform="cpu")
    words = "Bus bandwidth of allreduce (float, sum)\nfastest: mpi 8 B to 512 B, ring-ll 2 KiB to 128 MiB"
    assert drawn("bandwidth", both).get_suptitle() == words
    assert drawn("bandwidth", both, predicted("mpi")).get_suptitle() == words, "a prediction changes nothing"
    level = run(*sweep("mpi"), *(replace(row, implementation="ring-ll") for row in sweep("mpi")))
    for runs in ([run(*sweep("mpi"))], [level], [both, run(*small, topology="other")], [predicted("mpi", "ring-ll")]):
        assert "fastest" not in drawn("bandwidth", *runs).get_suptitle()
    assert "fastest" not in drawn("overlay-bandwidth", both, level, overlay=True).get_suptitle()


def test_disturbed_points_are_hollow_and_neither_ranked_nor_compared() -> None:
    fast = [replace(row, seconds=tuple(t / 9 for t in row.seconds)) for row in sweep("ring-ll")]
    rows = [*sweep("mpi"), *(replace(row, scheduling=Scheduling(off_core=0.9)) for row in fast)]
    figure = drawn("latency", run(*rows, platform="cpu"))
    assert "fastest" not in figure.get_suptitle()
    assert marks(figure, "unsure")[0] == list(SIZES)
    assert "hollow: disturbed or\nuncertain" in labels(figure)
    assert not [name for name, _ in curves.figures([run(*rows, platform="cpu")], kinds.PlotRequest(["ratio"]))]


@pytest.mark.parametrize("change", [{"scheduling": Scheduling(off_core=0.9)}, {"seconds": (1.0, 3.0, 9.0) * 9}])
def test_lines_and_bands_break_at_uncertain_points_and_the_axis_leaves_them_out(change: dict[str, Any]) -> None:
    broken = SIZES[5]
    sure = [row for row in sweep("mpi", "ring-ll") if (row.implementation, row.case.nbytes) != ("mpi", broken)]
    slow = replace(measured("mpi", case(broken)), **{"seconds": (3.0,) * 27} | change)
    calm, figure = drawn("latency", run(*sure)), drawn("latency", run(*sure, slow))
    (axes,) = figure.axes
    sizes, times = lines(axes)["mpi"]
    assert [size for size, seconds in zip(sizes, times, strict=True) if math.isnan(seconds)] == [broken]
    assert [{size for size, _ in corners(band)} for band in bands(axes)] == [{*SIZES[:5]}, {*SIZES[6:]}, {*SIZES}]
    assert axes.get_ylim() == pytest.approx(calm.axes[0].get_ylim())
    assert marks(figure, "outside") == ([broken], [axes.get_ylim()[1]])
    ratios = lines(drawn("ratio", run(*sure, slow)).axes[0])["ring-ll"][1]
    assert [math.isnan(ratio) for ratio in ratios] == [size == broken for size in SIZES], "over an uncertain time"


def test_bands_end_at_twice_and_half_with_an_arrow() -> None:
    row = replace(measured("nccl", case(64)), seconds=(0.4, 0.4, 0.4, 1.0, 1.0, 1.0, 2.2, 2.2, 2.2))
    for view, low, high in (("latency", 0.5, 2.0), ("bandwidth", row.busbw / 2, row.busbw * 2)):
        figure = drawn(view, run(row, *sweep("nccl", sizes=SIZES[3:])))
        assert sorted(y for x, y in corners(bands(figure.axes[0])[0]) if x == 64) == pytest.approx([low, high])
        assert marks(figure, "cut")[1] == pytest.approx([low, high])


def marks(figure: Figure, group: str) -> tuple[list[float], list[float]]:
    found = [line for line in figure.axes[0].lines if line.get_gid() == group]
    return [x for line in found for x in line.get_xdata()], [y for line in found for y in line.get_ydata()]


def test_a_prediction_lies_over_what_was_measured_on_as_many_ranks() -> None:
    runs = [run(*sweep("nccl", "ring-ll"), platform="cpu"), predicted("nccl")]
    times = [result.typical for result in sweep("nccl")]
    for order in (1, -1):
        figure = drawn("latency", *runs[::order])
        (axes,) = figure.axes
        assert set(lines(axes)) == {"nccl", "ring-ll", "nccl, predicted"}
        assert labels(figure) == ["nccl, predicted", "ring-ll", "nccl", "95 % interval", "nine in ten, predicted"]
        assert len({line.get_color() for line in axes.lines if "nccl" in str(line.get_label())}) == 1
        assert title(axes) == "2 sockets, 4 ranks\npredicted: DGX"
        assert figure.get_suptitle().startswith("Latency of allreduce (float, sum)\n"), "measured"
        assert lines(axes)["nccl, predicted"][1] == pytest.approx([2 * seconds for seconds in times])
        assert lines(axes)["nccl"][1] == times
    twice = [run(*sweep("nccl"), name=name, platform="cpu") for name in ("before", "after")]
    both = drawn("latency", *twice, predicted("nccl"))
    assert [set(lines(axes)) for axes in both.axes] == [{"nccl", "nccl, predicted"}] * 2


def test_the_legend_names_the_library_and_no_line_mixes_two() -> None:
    sizes = {"MPICH 5.0.2": SIZES[:6], "Open MPI 5.0.11": SIZES[6:]}
    runs = [run(*sweep("mpi", sizes=part, library=name), name=name) for name, part in sizes.items()]
    figure = drawn("bandwidth", *runs)
    assert {"mpi: MPICH 5.0.2", "mpi: Open MPI 5.0.11"} <= set(labels(figure))
    found = [line for axes in figure.axes for line in axes.get_lines() if str(line.get_label()).startswith("mpi")]
    assert sorted(len(line.get_xdata()) for line in found) == sorted(map(len, sizes.values()))  # type: ignore[arg-type]
    assert len({(line.get_color(), line.get_marker()) for line in found}) == 2


CROWD = run(*sweep(*styles.LOOKS, "a", "b", "c"))


def by_name(figure: Figure) -> dict[str, Line2D]:
    return {str(line.get_label()): line for line in figure.axes[0].lines if not str(line.get_label()).startswith("_")}


def coloured(figure: Figure) -> set[str]:
    return {name for name, line in by_name(figure).items() if line.get_color() != MUTED}


def times(name: str, *seconds: float) -> list[Measurement]:
    rows = sweep(name, sizes=SIZES[: len(seconds)])
    return [replace(row, seconds=(value,) * 9) for row, value in zip(rows, seconds, strict=True)]


def test_at_most_seven_lines_have_a_colour_unless_more_are_asked_for() -> None:
    for request, most in (({}, COLOURED), ({"coloured": 3}, 3), ({"coloured": 99}, 15)):
        figure = drawn("bandwidth", CROWD, **request)
        found = by_name(figure)
        grey = set(found) - coloured(figure)
        assert (len(found), len(found) - len(grey)) == (15, most)
        assert not {"nccl", "mpi"} & grey
        assert all(found[name].get_linewidth() < found["nccl"].get_linewidth() for name in grey)
        assert set(found) <= set(labels(figure)), most


def test_libraries_have_a_colour_then_whoever_wins_somewhere_then_the_nearest() -> None:
    rows = [
        *times("mpi", 9.0, 9.0, 9.0),
        *times("wins-once", 1.0, 8.0, 8.0),
        *times("wins-twice", 2.0, 1.0, 1.0),
        *times("near", 1.5, 1.5, 1.5),
        *times("far", 3.0, 3.0, 3.0),
    ]
    order = ["mpi", "wins-twice", "wins-once", "near", "far"]
    for most in range(len(order) + 1):
        assert coloured(drawn("bandwidth", run(*rows), coloured=most)) == set(order[:most])


def test_auto_is_a_mark_on_the_line_of_what_it_picked() -> None:
    picks = ["ring-ll" if number < 5 else "nccl" for number in range(len(SIZES))]
    rows = [replace(row, note=Note(picked=pick)) for row, pick in zip(sweep("auto"), picks, strict=True)]
    figure = drawn("bandwidth", run(*sweep("nccl", "ring-ll"), *rows), coloured=2)
    found = by_name(figure)
    assert found["auto"].get_linestyle() == "None"
    assert found["auto"].get_markerfacecolor() == "none"
    assert lines(figure.axes[0])["auto"][0] == list(SIZES)
    assert MUTED not in {line.get_color() for line in found.values()}
    assert labels(figure)[-2:-1] == ["auto"], "after the lines, before the bands"
    for others in (("nccl",), ("nccl", "two-shot")):
        figure = drawn("bandwidth", run(*sweep(*others), *rows))
        assert by_name(figure)["auto"].get_linestyle() != "None", "marks would hang in the air"
