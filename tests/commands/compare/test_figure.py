"""The figure of ratios: what is in it, and how what is unknown looks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collbench.analysis.compare import compare
from collbench.commands.compare.figure import check, draw, figure
from collbench.errors import UsageError
from collbench.results import Result
from collbench.runfile.schema import Header
from collbench.runfile.store import Run
from collbench.stats import Estimate
from tests.conftest import measurement

SIZES = (64, 4096, 2**20)


def run(name: str, *results: Result) -> Run:
    return Run(Path(name) / "run.jsonl", Header(), results, True)


def timed(name: str, seed: int, factor: float = 1.0, collectives: tuple[str, ...] = ("allreduce",)) -> Run:
    generator = np.random.default_rng(seed)

    def seconds(nbytes: int) -> tuple[float, ...]:
        return tuple(factor * nbytes * 1e-9 * np.exp(0.02 * generator.normal(size=40)))

    rows = [
        measurement(implementation, seconds(nbytes), collective=collective, nbytes=nbytes)
        for collective in collectives
        for nbytes in SIZES
        for implementation in ("mpi", "ring-flags")
    ]
    return run(name, *rows)


def test_every_kind_of_case_of_every_comparison_has_a_panel_with_its_name() -> None:
    base = timed("base", 1, collectives=("allreduce", "broadcast"))
    others = [timed("one", 2, collectives=("allreduce", "broadcast")), timed("two", 3)]
    drawn = figure([compare(base, other) for other in others])
    assert drawn
    titles = [axes.get_title(loc="left") for axes in drawn.axes]
    assert [(title.split(",")[0], title.splitlines()[1]) for title in titles] == [
        ("allreduce", "one against base"),
        ("broadcast", "one against base"),
        ("allreduce", "two against base"),
    ]


def test_ratios_and_intervals_are_where_they_belong() -> None:
    found = compare(timed("base", 1), timed("new", 2, 1.5))
    drawn = figure([found])
    assert drawn
    (axes,) = drawn.axes
    low, high = axes.get_ylim()
    assert low < 1 / 1.05
    assert high > max(row.interval[1] for row in found.rows) > 1.4
    points = sorted(float(line.get_ydata()[0]) for line in axes.lines if line.get_linestyle() == "None")  # type: ignore
    assert points == pytest.approx(sorted(row.ratio for row in found.rows))
    paths = [path for collection in axes.collections for path in collection.get_paths() if len(path) == 2]
    spans = sorted(tuple(path.vertices[:, 1]) for path in paths)
    assert np.array(spans) == pytest.approx(np.array(sorted(row.interval for row in found.rows)))
    found = compare(timed("base", 1), timed("new", 2))
    wild = replace(
        found,
        rows=(
            replace(found.rows[0], judgement=replace(found.rows[0].judgement, ratio=Estimate(1.0, 1e-9, 1e9))),
            *found.rows[1:],
        ),
    )
    hopeless = figure([wild])
    assert hopeless
    assert hopeless.axes[0].get_ylim()[1] < 6, "the axis reaches four times beyond the ratios and no further"


def test_a_comparison_is_written_to_the_same_bytes_and_nothing_to_no_file(tmp_path: Path) -> None:
    found = compare(timed("base", 1), timed("new", 2))
    for suffix in ("png", "pdf"):
        one, other = draw([found], [tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"])
        assert one.read_bytes() == other.read_bytes(), suffix
    assert draw([compare(timed("base", 1), run("x"))], [tmp_path / "x.png"]) == []
    assert not (tmp_path / "x.png").exists()
    with pytest.raises(UsageError, match=r"\.png, \.svg, \.pdf"):
        check([Path("x.gif")])
