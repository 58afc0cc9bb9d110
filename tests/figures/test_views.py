"""What stands along y (`--view`), which lines are drawn (`--impl`), and topologies in one panel (`--overlay`)."""

from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from collbench.analysis.bound import bound
from collbench.collectives import COLLECTIVES, Collective
from collbench.errors import UsageError
from collbench.figures import curves, overlay, styles, views
from collbench.figures.kinds import Wanted
from collbench.measure.predicted import topology_record
from collbench.measurement import Measurement, Prediction, Reported
from collbench.note import Note
from collbench.runs.file import Run
from collbench.runs.header import Header
from collbench.topology.devices import SLICE, Gpu, Kind, Link, NvLink, Pcie
from collbench.topology.files import load
from collbench.topology.topology import Topology
from tests.figures.test_curves import SIZES, WRONG, bands, case, labels, lines, measured, predicted, run, sweep

FEW = SIZES[::3]
H100 = Gpu("NVIDIA H100 80GB HBM3", capability="9.0", nvlink=NvLink(4, 18), switch_links=18)
SLICED = Gpu("NVIDIA H100 MIG 1g.10gb", uuid=f"{SLICE}0", capability="9.0", pcie=Pcie(5, 16, 5, 16))


def drawn(kind: str, *runs: Run, said: list[str] | None = None, **wanted: Any) -> Figure:
    """That figure, if it is drawn."""
    say = [].append if said is None else said.append
    return dict(curves.figures(runs, wanted=Wanted(views=[kind.split("-")[-1]], **wanted), say=say))[kind]


def on(name: str, ranks: int, collective: str = "allreduce", nodes: int = 1) -> Run:
    """A predicted run on a preset: 50 GB/s and 10 us."""
    system = load(name).of(nodes).part(ranks)
    found = []
    for of in (case(size, collective, ranks=ranks) for size in FEW):
        seconds = 10e-6 + of.nbytes / 50e9
        found.append(Prediction(of, "nccl", seconds, seconds / 2, seconds * 2))
    return Run(
        Path(f"runs/{name}/run.jsonl"), Header.from_json({"topology": topology_record(system)}), tuple(found), True
    )


def discovered(ranks: int, gpus: int = 8, gpu: Gpu = H100) -> Run:
    """A measured run, on NVSwitch or on slices of one GPU, as its header says."""
    kind = Kind.SAME_GPU if gpu.slice else Kind.NVSWITCH
    links = tuple(Link(a, b, kind, p2p="yes") for a, b in combinations(range(gpus), 2))
    topology = Topology("gpu", ranks, gpus=(gpu,) * gpus, links=links)
    results = tuple(measured("nccl", case(size, ranks=ranks), platform="gpu") for size in FEW)
    return Run(Path("runs/a/run.jsonl"), Header.from_json({"topology": topology.to_json()}), results, True)


@pytest.mark.parametrize("quantity", views.QUANTITIES, ids=lambda record: record.name)
def test_every_view_is_a_figure_of_its_own_name(quantity: views.Quantity) -> None:
    """With an axis that says what it is; the default ones need not be asked for."""
    runs = [on("dgx-h100", 8), predicted("nccl", "ring-ll", ranks=8)]
    ((stem, figure),) = curves.figures(runs, wanted=Wanted(views=[quantity.name]))
    assert stem == quantity.name
    assert figure.get_suptitle().startswith(f"Predicted {quantity.heading} of allreduce")
    assert figure.axes[0].get_ylabel()
    stems = [stem for stem, _ in curves.figures(runs)]
    assert (quantity.name in stems) == (quantity.name in views.DEFAULT)


def test_views_are_chosen_by_name_in_one_order() -> None:
    """All of them by a word; another word is an error that lists them."""
    every = [quantity.name for quantity in views.QUANTITIES]
    assert [quantity.name for quantity in views.chosen(["ratio", "bandwidth"])] == ["bandwidth", "ratio"]
    assert [quantity.name for quantity in views.chosen(["all"])] == every
    with pytest.raises(UsageError, match=f"unknown --view 'speed'; choose from: all, {', '.join(every)}"):
        views.chosen(["speed"])


def test_a_ratio_above_one_is_faster_than_the_library() -> None:
    """The library's time over the implementation's, on a log axis with a line at one that is the library."""
    fast = [replace(result, seconds=tuple(s / 3 for s in result.seconds)) for result in sweep("ring-flags")]
    axes = drawn("ratio", run(*sweep("nccl", "ring-ll"), *fast)).axes[0]
    found = lines(axes)
    assert found["ring-ll"] == (list(SIZES), pytest.approx([0.5] * len(SIZES)))
    assert found["ring-flags"] == (list(SIZES), pytest.approx([1.5] * len(SIZES)))
    assert "nccl" not in found
    assert [line.get_ydata() for line in axes.lines if len(line.get_xdata()) == 2] == [[1, 1]]  # type: ignore[arg-type]
    assert (axes.get_yscale(), axes.get_ylabel()) == ("log", "speed-up over nccl")


def test_a_ratio_lies_between_the_extremes_of_both_intervals() -> None:
    """The library's fastest over the slowest, and the other way round; the legend says what that is worth."""
    results = run(*sweep("nccl", "ring-ll", sizes=FEW))
    figure = drawn("ratio", results)
    (band,) = bands(figure.axes[0])
    corners = {(round(x), y) for x, y in band.get_paths()[0].vertices.tolist()}  # type: ignore[union-attr]
    expected = set()
    for library, own in zip(sweep("nccl", sizes=FEW), sweep("ring-ll", sizes=FEW), strict=True):
        ends = library.interval[0] / own.interval[1], library.interval[1] / own.interval[0]
        expected |= {(own.case.nbytes, end) for end in ends}
    assert corners == expected
    assert labels(figure) == ["ring-ll", "90 % interval"]


def test_expected_is_compared_with_expected_and_measured_with_measured() -> None:
    """Also where both lie in one panel; a ratio of predictions has no band."""
    slower = [replace(expectation, seconds=expectation.seconds * 2) for expectation in expectations("ring-ll")]
    model = run(*expectations("nccl"), *slower, topology="DGX", name="DGX", platform="cpu")
    figure = drawn("ratio", run(*sweep("nccl", "ring-ll"), platform="cpu"), model)
    found = lines(figure.axes[0])
    assert found["ring-ll"][1] == pytest.approx([0.5] * len(SIZES))
    assert found["ring-ll, predicted"][1] == pytest.approx([0.25] * len(SIZES))
    assert labels(figure) == ["ring-ll", "ring-ll, predicted", "90 % interval"]
    assert len(bands(figure.axes[0])) == 1


def expectations(name: str) -> list[Prediction]:
    return [result for result in predicted(name).results if isinstance(result, Prediction)]


def test_without_a_library_there_is_no_ratio_and_one_reason() -> None:
    """Of that panel; others are drawn."""
    said: list[str] = []
    alone = [*sweep("ring-ll"), *(measured("ring-ll", case(64, in_place=True)) for _ in "a")]
    figure = drawn("ratio", run(*sweep("mpi", "ring-ll"), topology="A"), run(*alone, topology="B"), said=said)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["A, 4 ranks"]
    assert said == ["ratio not drawn for B, 4 ranks: no library (nccl, mpi) was timed there to compare with"]
    said.clear()
    assert not list(curves.figures([run(*sweep("mpi"))], wanted=Wanted(views=["ratio"]), say=said.append))
    assert "nothing has a time beside the library's" in said[0]


def test_chosen_implementations_alone_are_drawn_and_still_compared() -> None:
    """The library's times are needed though its line is not."""
    results = run(*sweep("nccl", "ring-ll", "ring-flags"))
    assert set(lines(drawn("latency", results, implementations=["ring-ll"]).axes[0])) == {"ring-ll"}
    figure = drawn("ratio", results, implementations=["ring-ll"])
    assert lines(figure.axes[0])["ring-ll"][1] == pytest.approx([0.5] * len(SIZES))
    assert labels(figure)[0] == "ring-ll"
    wrong = measured("ring-flags", case(2**30), mismatch=WRONG)
    title = drawn("latency", run(*results.results, wrong), implementations=["ring-ll"]).axes[0].get_title(loc="left")
    assert title == "2 sockets, 4 ranks"


@pytest.mark.parametrize(
    ("results", "per_byte", "line"),
    [
        (on("dgx-a100", 8), 2 * 7 / 8, 300e9),  # 12 NVLinks of 25 GB/s
        (on("dgx-h100", 8), 1 + 1 / 8, 450e9),  # its switches add
        (on("dgx-h100", 8, "allgather"), 7 / 8, 450e9),
        (on("dgx-h100", 16, nodes=2), 2 * 1 / 2, 8 * 50e9),  # a node's cards; a tree sends once each way
        (on("dgx-h100", 16, "allgather", nodes=2), 15 / 16, 8 * 50e9),
        (on("pcie4-4090", 4), 2 * 3 / 4, 16 * 16e9 / 8 * 128 / 130),
        (discovered(8), 1 + 1 / 8, 450e9),
    ],
    ids=["ring", "nvls", "allgather", "nodes", "allgather of nodes", "PCIe", "discovered"],
)
def test_the_bound_is_what_the_line_rate_allows(results: Run, per_byte: float, line: float) -> None:
    """All bytes that the thriftiest algorithm sends, in the measured time, over the line rate."""
    axes = drawn("bound", results).axes[0]
    timed = [result for result in results.results if isinstance(result, Measurement | Prediction)]
    expected = [row.case.nbytes * per_byte / row.typical / line for row in timed]
    assert lines(axes)["nccl"][1] == pytest.approx(expected)
    assert f"line: {line / 1e9:.4g} GB/s" in axes.get_title(loc="left")
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] > 1
    assert "100 %" in [text.get_text() for text in axes.get_yticklabels()]


@pytest.mark.parametrize(
    ("results", "why"),
    [
        (run(*sweep("mpi"), platform="cpu", ranks=4), "ranks on CPUs are bound by memory beyond their caches alone"),
        (discovered(4, gpus=1), "ranks that share a GPU"),
        (discovered(2, 2, SLICED), "MIG slices share a GPU's memory and slot"),
        (run(*(measured("nccl", case(size, ranks=1)) for size in FEW)), "one rank sends nothing"),
        (run(*sweep("nccl")), "does not say what the machine is; name it with --as"),
    ],
    ids=["cpu", "shared", "slices", "one rank", "unknown"],
)
def test_without_a_known_bound_the_view_says_why(results: Run, why: str) -> None:
    """And draws nothing: no line rate is made up."""
    said: list[str] = []
    assert not list(curves.figures([results], wanted=Wanted(views=["bound"]), say=said.append))
    (reason,) = said
    assert reason.startswith("bound not drawn for ")
    assert why in reason


def test_the_bound_of_memory_is_what_was_measured_beside_each_row() -> None:
    """A line in the figures of bandwidth and time, at the sizes that have it; the share is of the row's own floor."""
    small, large = case(2**20), case(2**27)
    slow = measured("two-shot", large)
    floor = slow.typical / 2
    results = run(replace(slow, floor=floor), measured("two-shot", small), platform="cpu")
    shares = drawn("bound", results).axes[0]
    sizes, values = lines(shares)["two-shot"]
    assert dict(zip(sizes, values, strict=True))[2**27] == pytest.approx(0.5)
    factor = large.collective.bus_factor(large.ranks)
    for view, value in (("latency", floor), ("bandwidth", factor * 2**27 / floor)):
        (across,) = [line for line in drawn(view, results).axes[0].lines if line.get_gid() == "bound"]
        assert list(across.get_xdata()) == [2**27]
        assert list(across.get_ydata()) == pytest.approx([value])
        level = [line for line in drawn(view, results).axes[0].lines if line.get_gid() == "bound-level"]
        assert [line.get_ydata()[0] for line in level] == pytest.approx([value] if view == "bandwidth" else [])
    assert not [line for line in shares.lines if line.get_gid() == "bound"], "there it is the line at 100 %"


def test_a_machine_can_be_named_for_files_that_do_not_say() -> None:
    """As logs of other tools do not."""
    axes = drawn("bound", run(*sweep("nccl")), machine="hgx-a100-4").axes[0]
    last = sweep("nccl")[-1]
    assert lines(axes)["nccl"][1][-1] == pytest.approx(last.algbw * 1.5 / load("hgx-a100-4").spec_rate)


def test_an_overlay_has_a_colour_for_each_topology_and_a_marker_for_each_implementation() -> None:
    """In one panel; the legend explains colours first, then the rest in a colour of none of them."""
    runs = [run(*sweep("nccl", "ring-ll"), topology=name, name=name) for name in ("NVSwitch", "PCIe")]
    figure = drawn("overlay-latency", *runs, overlay=True)
    (axes,) = figure.axes
    assert [line.get_color() for line in axes.lines] == [color for color in styles.COLORS[:2] for _ in "ab"]
    assert [line.get_marker() for line in axes.lines] == [styles.LOOKS[name].marker for name in ("nccl", "ring-ll")] * 2
    assert labels(figure) == ["NVSwitch", "PCIe", "ring-ll", "nccl", "95 % interval"]
    explained = [handle.get_color() for handle in figure.legends[0].get_lines()]  # type: ignore[attr-defined]
    assert not set(explained) & set(styles.COLORS)


def test_an_overlay_of_one_topology_goes_by_the_names_of_the_runs() -> None:
    """The title says the topology once, and of which run a remark is."""
    before, after = run(*sweep("mpi"), name="before"), run(*sweep("mpi", note=Note(oversubscribed=True)), name="after")
    figure = drawn("overlay-latency", before, after, overlay=True)
    assert labels(figure)[:2] == ["before", "after"]
    assert figure.axes[0].get_title(loc="left") == "2 sockets, 4 ranks\nafter: oversubscribed"


def test_an_overlay_says_ranks_where_they_differ_and_numbers_twins() -> None:
    """No two colours ever have one name."""
    two = run(*(measured("nccl", case(size, ranks=2)) for size in FEW), topology="A")
    assert labels(drawn("overlay-latency", run(*sweep("nccl"), topology="A"), two, overlay=True))[:2] == [
        "A, 4 ranks",
        "A, 2 ranks",
    ]
    twins = [run(*sweep("nccl")), run(*sweep("nccl"))]
    assert labels(drawn("overlay-latency", *twins, overlay=True))[:2] == ["a (1)", "a (2)"]


def test_an_overlay_of_predictions_is_dashed_and_hollow_in_colour() -> None:
    """On described systems, each against its own bound."""
    figure = drawn("overlay-bound", on("dgx-h100", 8), on("dgx-a100", 8), overlay=True)
    for line, color in zip(figure.axes[0].lines[:2], styles.COLORS, strict=False):
        assert (line.get_color(), line.get_linestyle(), line.get_markerfacecolor()) == (color, "--", "white")
    title = figure.axes[0].get_title(loc="left").splitlines()
    assert title == [
        "DGX H100, 8 GPUs: line: 450 GB/s, a GPU's NVLinks",
        "DGX A100, 8 GPUs: line: 300 GB/s, a GPU's NVLinks",
    ]


def test_an_overlay_shows_one_kind_of_bandwidth() -> None:
    """The algorithm's, where one of the topologies has no bus."""
    shared = run(*sweep("nccl", platform="gpu"), topology="one GPU", shared=True)
    axes = drawn("overlay-bandwidth", run(*sweep("nccl"), topology="NVSwitch"), shared, overlay=True).axes[0]
    assert axes.get_ylabel() == "algorithm bandwidth"
    for line in axes.lines:
        assert list(line.get_ydata()) == pytest.approx([result.algbw for result in sweep("nccl")])


def test_an_overlay_of_more_topologies_than_colours_is_refused() -> None:
    """Rather than two in one colour."""
    runs = [run(*sweep("mpi", sizes=FEW), topology=f"t{number}") for number in range(len(styles.COLORS) + 1)]
    assert len(drawn("overlay-latency", *runs[:-1], overlay=True).axes[0].lines) == len(styles.COLORS)
    with pytest.raises(UsageError, match="give fewer runs"):
        drawn("overlay-latency", *runs, overlay=True)


def test_colours_of_topologies_differ_in_grey_print() -> None:
    """By 9 of CIE L* at least, from black to what is still seen on white."""

    def lightness(color: str) -> float:
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color))
        light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        return float(116 * light ** (1 / 3) - 16 if light > 0.008856 else 903.3 * light)

    found = sorted(map(lightness, styles.COLORS))
    assert all(light - dark > 9 for dark, light in pairwise(found))
    assert found[-1] < 75


def test_what_auto_picked_is_no_remark_but_what_else_it_says_is() -> None:
    """It picks anew at each size, which the table tells."""
    picks = [
        measured("auto", case(size), note=Note(picked=name, oversubscribed=True))
        for size, name in zip(FEW, ("one-shot-ll", "ring-ll", "two-shot"), strict=False)
    ]
    plain = sweep("mpi", sizes=FEW, note=Note(oversubscribed=True))
    for quantity in views.DEFAULT:
        title = drawn(quantity, run(*plain, *picks)).axes[0].get_title(loc="left")
        assert title == "2 sockets, 4 ranks\noversubscribed"


@pytest.mark.parametrize(
    ("header", "remark"),
    [({"imported": {"tool": "nccl-tests"}}, "reported by nccl-tests"), ({}, "reported by another tool")],
)
def test_what_another_tool_reported_is_drawn_and_said(header: dict[str, Any], remark: str) -> None:
    """By which tool, and of which lines where others were measured here."""
    words = "mean of 20 operations"
    rows = tuple(Reported(result.case, "nccl", "gpu", result.typical, words) for result in sweep("nccl"))
    imported = Run(
        Path("log.jsonl"), Header.from_json({"topology": {"name": "DGX", "platform": "gpu"}, **header}), rows, True
    )
    figure = drawn("latency", imported)
    assert lines(figure.axes[0])["nccl"][1] == [row.seconds for row in rows]
    assert figure.axes[0].get_title(loc="left") == f"DGX, 4 ranks\n{remark}"
    assert labels(figure) == ["nccl"]
    here = run(*sweep("ring-ll", platform="gpu"), topology="DGX", platform="gpu")
    assert drawn("latency", imported, here).axes[0].get_title(loc="left") == f"DGX, 4 ranks\nnccl: {remark}"


@pytest.mark.parametrize("collective", [name for name, one in COLLECTIVES.items() if one.parts > 1])
def test_pairs_and_barriers_have_no_bound(collective: str) -> None:
    """Nobody says which links the two ends of a pair are joined by; the figure is drawn without."""
    one = on("dgx-h100", 8, collective)
    with pytest.raises(UsageError, match=f"nothing says over which links a {collective} goes"):
        bound(one, one.results[0].case)
    assert lines(drawn("latency", one).axes[0])["nccl"]


@pytest.mark.parametrize("one", COLLECTIVES.values(), ids=lambda one: one.name)
def test_what_has_no_message_sizes_has_times_and_no_bandwidth(one: Collective) -> None:
    """4 B a microsecond are no property of a barrier; a reason stands for the figure."""
    said: list[str] = []
    drawn = curves.figures([on("dgx-h100", 8, one.name)], say=said.append)
    names = [name for name, _ in drawn]
    assert [name.rpartition("-")[2] for name in names] == ["bandwidth"] * one.sized + ["latency"]
    reasons = [] if one.sized else [f"no message has a size in a {one.name}"]
    assert [line.rpartition(": ")[2] for line in said] == reasons


@pytest.mark.parametrize("collective", [name for name, one in COLLECTIVES.items() if one.parts == 1])
def test_the_bound_of_every_collective_is_finite(collective: str) -> None:
    """Each sends something over the line."""
    axes = drawn("bound", on("dgx-h100", 8, collective)).axes[0]
    assert all(0 < share < 1 for share in lines(axes)["nccl"][1])


def test_layers_look_like_their_implementation_but_for_the_colour() -> None:
    """Without a colour, in an ordinary panel, nothing changes."""
    (panel,) = (drawn for row in curves.panels([run(*sweep("mpi"))]).values() for drawn in row)
    look = styles.LOOKS["mpi"]
    assert overlay.Layer(panel).look(look) == look
    assert overlay.Layer(panel, "a", "#123456").look(look) == look._replace(color="#123456")
