"""What stands along y (`--view`), which lines are drawn (`--impl`), topologies in one panel (`--overlay`), bounds."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from collbench.analysis.roofline import roofline
from collbench.collectives import COLLECTIVES
from collbench.errors import UsageError
from collbench.measure.predicted import topology_record
from collbench.plots import curves, views
from collbench.plots.kinds import PlotRequest
from collbench.present import figures as styles
from collbench.present.figures import STYLES
from collbench.results import Measurement, Prediction
from collbench.runfile.schema import Header
from collbench.runfile.store import Run
from collbench.topology.discovered import SLICE, Gpu, Link, LinkKind, NvLink, Pcie, Topology
from collbench.topology.files import load
from tests.plots.made_up_sweeps import (
    SIZES,
    WRONG,
    bands,
    case,
    corners,
    drawn,
    labels,
    lines,
    measured,
    predicted,
    run,
    sweep,
    title,
)

FEW = SIZES[::3]
H100 = Gpu("NVIDIA H100 80GB HBM3", capability="9.0", nvlink=NvLink(4, 18), switch_links=18)
SLICED = Gpu("NVIDIA H100 MIG 1g.10gb", uuid=f"{SLICE}0", capability="9.0", pcie=Pcie(5, 16, 5, 16))


def on(name: str, ranks: int, collective: str = "allreduce", nodes: int = 1) -> Run:
    found = []
    for of in (case(size, collective, ranks=ranks) for size in FEW):
        seconds = 10e-6 + of.nbytes / 50e9
        found.append(Prediction(of, "nccl", seconds, seconds / 2, seconds * 2))
    header = Header(topology=topology_record(load(name).of(nodes).part(ranks)))
    return Run(Path(f"runs/{name}/run.jsonl"), header, tuple(found), True)


def discovered(ranks: int, gpus: int = 8, gpu: Gpu = H100) -> Run:
    """A measured run, on NVSwitch or on slices of one GPU, as its header says."""
    kind = LinkKind.SAME_GPU if gpu.slice else LinkKind.NVSWITCH
    links = tuple(Link(a, b, kind, p2p="yes") for a, b in combinations(range(gpus), 2))
    topology = Topology("gpu", ranks, gpus=(gpu,) * gpus, links=links)
    results = tuple(measured("nccl", case(size, ranks=ranks), platform="gpu") for size in FEW)
    return Run(Path("runs/a/run.jsonl"), Header.from_json({"topology": topology.to_json()}), results, True)


def expectations(name: str) -> list[Prediction]:
    return [result for result in predicted(name).results if isinstance(result, Prediction)]


def bounds(axes: Axes, kind: str = "bound") -> list[Line2D]:
    return [line for line in axes.lines if line.get_gid() == kind]


def reasons(view: str, results: Run) -> list[str]:
    said: list[str] = []
    assert not list(curves.figures([results], request=PlotRequest(views=[view]), say=said.append))
    return said


def test_every_view_is_a_figure_of_its_own_name() -> None:
    runs = [on("dgx-h100", 8), predicted("nccl", "ring-ll", ranks=8)]
    every = [quantity.name for quantity in views.VIEWS]
    for quantity in views.VIEWS:
        ((stem, figure),) = curves.figures(runs, request=PlotRequest(views=[quantity.name]))
        assert stem == quantity.name
        assert figure.get_suptitle() == f"Predicted {quantity.heading or 'bus bandwidth'} of allreduce (float, sum)"
        assert figure.axes[0].get_ylabel()
    assert [stem for stem, _ in curves.figures(runs)] == [name for name in every if name in ("bandwidth", "latency")]
    assert [quantity.name for quantity in views.chosen(["ratio", "bandwidth"])] == ["bandwidth", "ratio"]
    assert [quantity.name for quantity in views.chosen(["all"])] == every
    with pytest.raises(UsageError, match=f"unknown --view 'speed'; choose from: all, {', '.join(every)}"):
        views.chosen(["speed"])


def test_a_ratio_above_one_is_faster_than_the_library() -> None:
    fast = [replace(result, seconds=tuple(s / 3 for s in result.seconds)) for result in sweep("ring-flags")]
    axes = drawn("ratio", run(*sweep("nccl", "ring-ll"), *fast)).axes[0]
    found = lines(axes)
    assert found["ring-ll"] == (list(SIZES), pytest.approx([0.5] * len(SIZES)))
    assert found["ring-flags"] == (list(SIZES), pytest.approx([1.5] * len(SIZES)))
    assert "nccl" not in found
    assert [line.get_ydata() for line in axes.lines if len(line.get_xdata()) == 2] == [[1, 1]]  # type: ignore[arg-type]
    assert (axes.get_yscale(), axes.get_ylabel()) == ("log", "speed-up over nccl")


def test_a_ratio_lies_between_the_extremes_of_both_intervals() -> None:
    figure = drawn("ratio", run(*sweep("nccl", "ring-ll", sizes=FEW)))
    (band,) = bands(figure.axes[0])
    expected = set()
    for library, own in zip(sweep("nccl", sizes=FEW), sweep("ring-ll", sizes=FEW), strict=True):
        ends = library.interval[0] / own.interval[1], library.interval[1] / own.interval[0]
        expected |= {(own.case.nbytes, end) for end in ends}
    assert corners(band) == expected
    assert labels(figure) == ["ring-ll", "90 % interval"]


def test_predicted_is_compared_with_predicted_and_measured_with_measured() -> None:
    slower = [replace(expectation, seconds=expectation.seconds * 2) for expectation in expectations("ring-ll")]
    model = run(*expectations("nccl"), *slower, topology="DGX", name="DGX", platform="cpu")
    figure = drawn("ratio", run(*sweep("nccl", "ring-ll"), platform="cpu"), model)
    found = lines(figure.axes[0])
    assert found["ring-ll"][1] == pytest.approx([0.5] * len(SIZES))
    assert found["ring-ll, predicted"][1] == pytest.approx([0.25] * len(SIZES))
    assert labels(figure) == ["ring-ll", "ring-ll, predicted", "90 % interval"]
    assert len(bands(figure.axes[0])) == 1


def test_without_a_library_there_is_no_ratio_of_that_panel_and_one_reason() -> None:
    said: list[str] = []
    alone = [*sweep("ring-ll"), measured("ring-ll", case(64, in_place=True))]
    figure = drawn("ratio", run(*sweep("mpi", "ring-ll"), topology="A"), run(*alone, topology="B"), said=said)
    assert [*map(title, figure.axes)] == ["A, 4 ranks"]
    assert said == ["ratio not drawn for B, 4 ranks: no library (nccl, mpi) was timed there to compare with"]
    assert "no implementation and the library have a time" in reasons("ratio", run(*sweep("mpi")))[0]


def test_chosen_implementations_alone_are_drawn_and_still_compared_with_the_library() -> None:
    results = run(*sweep("nccl", "ring-ll", "ring-flags"))
    assert set(lines(drawn("latency", results, implementations=["ring-ll"]).axes[0])) == {"ring-ll"}
    figure = drawn("ratio", results, implementations=["ring-ll"])
    assert lines(figure.axes[0])["ring-ll"][1] == pytest.approx([0.5] * len(SIZES))
    assert labels(figure)[0] == "ring-ll"
    wrong = measured("ring-flags", case(2**30), mismatch=WRONG)
    chosen = drawn("latency", run(*results.results, wrong), implementations=["ring-ll"])
    assert title(chosen.axes[0]) == "2 sockets, 4 ranks"


def test_the_bound_is_what_the_line_rate_allows() -> None:
    for results, per_byte, line in (
        (on("dgx-a100", 8), 2 * 7 / 8, 300e9),  # 12 NVLinks of 25 GB/s
        (on("dgx-h100", 8), 1 + 1 / 8, 450e9),  # its switches add
        (on("dgx-h100", 8, "allgather"), 7 / 8, 450e9),
        (on("dgx-h100", 16, nodes=2), 2 * 1 / 2, 8 * 50e9),  # a node's cards; a tree sends once each way
        (on("dgx-h100", 16, "allgather", nodes=2), 15 / 16, 8 * 50e9),
        (on("pcie4-4090", 4), 2 * 3 / 4, 16 * 16e9 / 8 * 128 / 130),
        (discovered(8), 1 + 1 / 8, 450e9),
    ):
        axes = drawn("bound", results).axes[0]
        timed = [result for result in results.results if isinstance(result, Measurement | Prediction)]
        expected = [row.case.nbytes * per_byte / row.typical / line for row in timed]
        assert lines(axes)["nccl"][1] == pytest.approx(expected), results.path
        assert f"line: {line / 1e9:.4g} GB/s" in title(axes)
        assert axes.get_ylim()[0] == 0
        assert axes.get_ylim()[1] > 1
        assert "100 %" in [text.get_text() for text in axes.get_yticklabels()]
    named = lines(drawn("bound", run(*sweep("nccl")), machine="hgx-a100-4").axes[0])["nccl"][1]
    assert named[-1] == pytest.approx(sweep("nccl")[-1].algbw * 1.5 / load("hgx-a100-4").spec_rate)


def test_pairs_and_barriers_have_no_bound_and_all_else_a_finite_one() -> None:
    for name, collective in COLLECTIVES.items():
        results = on("dgx-h100", 8, name)
        if collective.parts == 1:
            assert all(0 < share < 1 for share in lines(drawn("bound", results).axes[0])["nccl"][1]), name
        else:
            with pytest.raises(UsageError, match=f"the links of a {name} are unknown"):
                roofline(results, results.results[0].case)


def test_what_has_no_message_sizes_has_times_and_no_bandwidth() -> None:
    for name in ("allreduce", "barrier", "pingpong"):
        said: list[str] = []
        collective = COLLECTIVES[name]
        stems = [stem.rpartition("-")[2] for stem, _ in curves.figures([on("dgx-h100", 8, name)], say=said.append)]
        assert stems == ["bandwidth"] * collective.sized + ["latency"]
        no_size = [] if collective.sized else [f"messages of a {name} have no size"]
        assert [line.rpartition(": ")[2] for line in said] == no_size


def test_without_a_known_bound_the_view_says_why_and_no_line_is_made_up() -> None:
    for results, why in (
        (run(*sweep("mpi"), platform="cpu", ranks=4), "no message exceeds the caches"),
        (discovered(4, gpus=1), "several ranks share a GPU"),
        (discovered(2, 2, SLICED), "MIG slices share a GPU's memory and slot"),
        (run(*(measured("nccl", case(size, ranks=1)) for size in FEW)), "one rank sends nothing"),
        (run(*sweep("nccl")), "the machine is unknown; name it with --on"),
    ):
        (reason,) = reasons("bound", results)
        assert reason.startswith("bound not drawn for ")
        assert why in reason
    axes = drawn("bandwidth", run(measured("two-shot", case(64)), measured("two-shot", case(4096)))).axes[0]
    assert not bounds(axes)
    assert not [text for text in axes.texts if "copy" in text.get_text() or "rate" in text.get_text()]


def test_the_bound_of_memory_is_the_copy_that_was_measured_beside_each_row_in_every_style() -> None:
    large = measured("two-shot", case(2**27))
    floor, factor = large.typical / 2, large.case.collective.bus_factor(4)
    results = run(replace(large, floor=floor), *sweep("two-shot", sizes=SIZES[:-1]), platform="cpu")
    shares = drawn("bound", results).axes[0]
    assert dict(zip(*lines(shares)["two-shot"], strict=True))[2**27] == pytest.approx(0.5)
    assert not bounds(shares), "there it is the line at 100 %"
    rate = f"{factor * 2**27 / floor / 1e9:.3g} GB/s"
    for style in STYLES.values():
        for view, value, told in (("latency", floor, "13.4 ms"), ("bandwidth", factor * 2**27 / floor, rate)):
            figure = drawn(view, results, style=style)
            (across,) = bounds(figure.axes[0])
            assert list(across.get_xdata()) == [2**27]
            assert list(across.get_ydata()) == pytest.approx([value])
            level = [line.get_ydata()[0] for line in bounds(figure.axes[0], "bound-level")]  # type: ignore[index]
            assert level == pytest.approx([value] if view == "bandwidth" else [])
            assert f"memory copy, in the same run: {told}" in [name.replace("\n", " ") for name in labels(figure)]


def test_the_line_rate_is_a_line_at_what_the_thriftiest_algorithm_makes_of_it() -> None:
    rate = 300e9  # 12 NVLinks of 25 GB/s; a ring's bus bandwidth is the rate of its links
    for view in ("bandwidth", "latency"):
        results = on("dgx-a100", 8)
        figure = drawn(view, results)
        (line,) = bounds(figure.axes[0])
        found = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))  # type: ignore[arg-type]
        if view == "bandwidth":
            assert list(found.values()) == pytest.approx([rate] * len(found))
            assert min(found) == min(row.case.nbytes for row in results.results)
        else:
            assert found[max(found)] == pytest.approx(max(found) * 1.75 / rate)
            fastest = min(row.typical for row in results.results if isinstance(row, Prediction))
            assert min(found.values()) > 0.1 * fastest, "no axis is stretched for times that nobody waits for"
        said = "bound by a GPU's NVLinks (line rate 300 GB/s): "
        assert any(name.replace("\n", " ").startswith(said) for name in labels(figure))
    adding = drawn("bandwidth", on("dgx-h100", 4))  # 1.5 of a ring's bytes, and 1.25 where the switch adds
    told = [name.replace("\n", " ") for name in labels(adding)]
    assert "bound by a GPU's NVLinks (line rate 450 GB/s): 540 GB/s" in told
    two = drawn("bandwidth", on("dgx-h100", 4), on("dgx-a100", 8))
    texts = [[text.get_text() for text in axes.texts] for axes in two.axes]
    assert texts == [["540 GB/s"], ["300 GB/s"]], "several bounds are told in their panels"


def test_an_overlay_has_a_colour_for_each_topology_and_a_marker_for_each_implementation() -> None:
    runs = [run(*sweep("nccl", "ring-ll"), topology=name, name=name) for name in ("NVSwitch", "PCIe")]
    figure = drawn("overlay-latency", *runs, overlay=True)
    (axes,) = figure.axes
    assert [line.get_color() for line in axes.lines] == [color for color in styles.COLORS[:2] for _ in "ab"]
    assert [line.get_marker() for line in axes.lines] == [styles.LOOKS[name].marker for name in ("nccl", "ring-ll")] * 2
    assert labels(figure) == ["NVSwitch", "PCIe", "ring-ll", "nccl", "95 % interval"]
    explained = [handle.get_color() for handle in figure.legends[0].get_lines()]  # type: ignore[attr-defined]
    assert not set(explained) & set(styles.COLORS)
