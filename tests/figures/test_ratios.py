"""The figure of ratios: what is in it, and how what is unknown looks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collbench.analysis.compare.compare import Comparison, compare
from collbench.errors import UsageError
from collbench.figures.ratios import check, draw, figure
from collbench.measurement import Reported
from collbench.runs.file import Run
from collbench.runs.header import Header
from tests.conftest import case, measurement

SIZES = (64, 4096, 2**20)


def run(name: str, seed: int, factor: float = 1.0, collectives: tuple[str, ...] = ("allreduce",)) -> Run:
    generator = np.random.default_rng(seed)
    results = tuple(
        measurement(
            implementation,
            tuple(factor * nbytes * 1e-9 * np.exp(0.02 * generator.normal(size=40))),
            collective=collective,
            nbytes=nbytes,
        )
        for collective in collectives
        for nbytes in SIZES
        for implementation in ("mpi", "ring-flags")
    )
    return Run(Path(name) / "run.jsonl", Header(), results, True)


def test_every_kind_of_case_of_every_comparison_has_a_panel() -> None:
    """Named after the case and both runs."""
    base = run("base", 1, collectives=("allreduce", "broadcast"))
    others = [run("one", 2, collectives=("allreduce", "broadcast")), run("two", 3)]
    drawn = figure([compare(base, other) for other in others])
    assert drawn
    titles = [axes.get_title(loc="left") for axes in drawn.axes]
    assert [(title.split(",")[0], title.splitlines()[1]) for title in titles] == [
        ("allreduce", "one against base"),
        ("broadcast", "one against base"),
        ("allreduce", "two against base"),
    ]


def test_ratios_and_intervals_are_where_they_belong() -> None:
    """A point a row, its interval through it, 1 and the margin's band inside the axes."""
    found = compare(run("base", 1), run("new", 2, 1.5))
    drawn = figure([found])
    assert drawn
    (axes,) = drawn.axes
    low, high = axes.get_ylim()
    assert low < 1 / 1.05
    assert high > max(row.interval[1] for row in found.rows) > 1.4
    points = sorted(float(line.get_ydata()[0]) for line in axes.lines if line.get_linestyle() == "None")  # type: ignore
    assert points == pytest.approx(sorted(row.ratio for row in found.rows))
    spans = [
        tuple(path.vertices[:, 1])
        for collection in axes.collections
        for path in collection.get_paths()
        if len(path) == 2
    ]
    assert np.array(sorted(spans)) == pytest.approx(np.array(sorted(row.interval for row in found.rows)))


def test_a_ratio_of_which_nothing_is_known_is_hollow() -> None:
    """And has no interval."""
    base, new = (
        Run(
            Path(name),
            Header(),
            (Reported(case(), "nccl", "gpu", seconds, "mean"), measurement("mpi", (1e-6,) * 9)),
            True,
        )
        for name, seconds in (("a", 1e-5), ("b", 2e-5))
    )
    drawn = figure([compare(base, new)])
    assert drawn
    marks = {
        line.get_color(): line.get_markerfacecolor() for line in drawn.axes[0].lines if line.get_marker() != "None"
    }
    assert list(marks.values()).count("white") == 1


def test_nothing_to_draw_is_no_file(tmp_path: Path) -> None:
    """Rather than an empty one."""
    nothing: Comparison = compare(run("base", 1), Run(Path("x"), Header(), (), True))
    assert draw([nothing], [tmp_path / "x.png"]) == []
    assert not list(tmp_path.iterdir())


def test_the_same_comparison_gives_the_same_bytes(tmp_path: Path) -> None:
    """So that a committed figure changes only with its numbers."""
    found = compare(run("base", 1), run("new", 2))
    for suffix in ("png", "svg", "pdf"):
        one, other = draw([found], [tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"])
        assert one.read_bytes() == other.read_bytes(), suffix


def test_a_hopeless_interval_leaves_the_rest_visible() -> None:
    """The axis reaches four times beyond the ratios and no further."""
    found = compare(run("base", 1), run("new", 2))
    wild = replace(found, rows=(replace(found.rows[0], interval=(1e-9, 1e9)), *found.rows[1:]))
    drawn = figure([wild])
    assert drawn
    assert drawn.axes[0].get_ylim()[1] < 6


def test_unknown_suffixes_are_refused() -> None:
    """With the choices."""
    with pytest.raises(UsageError, match=r"\.png, \.svg, \.pdf"):
        check([Path("x.gif")])
