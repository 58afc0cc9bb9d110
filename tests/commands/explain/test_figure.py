"""Pictures of explanations: what a rank did when, and many hops as shares of bins."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from collbench.cli.results_table import row
from collbench.commands.explain.command import write_trace
from collbench.commands.explain.figure import spent
from collbench.plots.kinds import PLAIN, kinds
from collbench.present import figures as palette
from collbench.results import Explanation
from collbench.results.collectives import ADDED, MOVED, PHASES, PUBLISHED, WAITED, Span, Track
from tests.conftest import case
from tests.plots.made_up_runs import run

HOP = ((WAITED, 1e-6), (MOVED, 4e-6), (ADDED, 4e-6), (PUBLISHED, 1e-6))


def track(rank: int, hops: int, lost: int = 0) -> Track:
    spans, now = [], 0.0
    for phase, seconds in HOP * hops:
        spans.append(Span(phase, now, seconds))
        now += seconds
    return Track(rank, 0, 0.0, now, {phase: hops * seconds for phase, seconds in HOP}, tuple(spans), lost)


def explained(name: str, hops: int, launch: float = 0.1, **fields: Any) -> Explanation:
    """An operation of so many hops, of which its launch takes that share on top."""
    tracks = tuple(track(rank, hops, **fields) for rank in (0, 1))
    seconds = tracks[0].seconds * (1 + launch)
    return Explanation(case(), name, "cpu", seconds, seconds, tracks)


def drawn(stem: str, *rows: Explanation) -> Figure:
    figures = dict(kinds()["timeline"].figures([run(*rows)], PLAIN, str))
    (found,) = (figure for name, figure in figures.items() if name.startswith(stem))
    found.draw_without_rendering()
    return found


def legend_has_the_colours_of_phases(figure: Figure) -> bool:
    patches = figure.legends[0].get_patches()
    return all(patch.get_facecolor()[:3] == to_rgb(palette.PHASES[patch.get_label()]) for patch in patches)  # type: ignore[index]


def test_a_log_that_made_another_program_is_named_with_the_time_that_it_added(tmp_path: Path) -> None:
    for longer, named in ((1.33, False), (2.28, True)):
        plain, other = explained("ring-flags", 2), explained("ring-host", 2)
        other = replace(other, traced=longer * other.seconds)
        picture = drawn("timeline-", other).axes[0].get_xlabel()
        write_trace([other], tmp_path / "trace.json")
        assert [bool(result.altered) for result in (plain, other)] == [False, named], longer
        for said in (picture, row(other, None), (tmp_path / "trace.json").read_text()):
            assert (f"{longer - 1:+.0%}, another program" in said) == named, (longer, said)
        assert "another program" not in row(plain, None)


def test_many_hops_are_shares_of_bins() -> None:
    for hops in (3, 160):
        figure = drawn("timeline-", explained("ring-flags", hops))
        (whole,) = figure.axes
        assert whole.get_xlim()[1] == pytest.approx(10e-6 * hops)
        assert [text.get_text() for text in whole.get_yticklabels()] == ["rank 0", "rank 1"]
        assert legend_has_the_colours_of_phases(figure)
        if hops > 3:
            steps = [patch for patch in whole.patches if hasattr(patch, "get_data")]
            assert len(steps) == 2 * len(PHASES), "each rank's phases"
            assert len({step.get_facecolor() for step in steps}) == len(PHASES)


def test_shares_of_a_bin_are_what_the_track_spent_in_it() -> None:
    one = track(0, 100)
    edges = np.linspace(0, one.seconds, 11)
    found = spent(one, edges)
    assert found.sum(1) == pytest.approx([one.spent[phase] for phase in PHASES])
    assert found.sum(0) == pytest.approx(np.diff(edges))
    (first,) = spent(one, np.array([0.0, 2e-6])).T
    assert dict(zip(PHASES, first, strict=True)) == pytest.approx({WAITED: 1e-6, MOVED: 1e-6, ADDED: 0, PUBLISHED: 0})
