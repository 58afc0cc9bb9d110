"""The bound in a figure: a line at its value, and words that say what it is."""

from dataclasses import replace

import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from collbench.figures.styles import STYLES
from collbench.measurement import Prediction
from tests.figures.test_curves import SIZES, case, labels, measured, run
from tests.figures.test_views import drawn, on


def bounds(axes: Axes) -> list[Line2D]:
    return [line for line in axes.lines if line.get_gid() == "bound"]


@pytest.mark.parametrize("view", ["bandwidth", "latency"])
def test_the_line_rate_is_a_line_at_what_it_allows(view: str) -> None:
    """By the bytes that the thriftiest algorithm sends; where y is a time, only where that time is worth showing."""
    results = on("dgx-a100", 8)
    figure = drawn(view, results)
    (line,) = bounds(figure.axes[0])
    rate = 300e9  # 12 NVLinks of 25 GB/s; a ring's bus bandwidth is the rate of its links
    found = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))  # type: ignore[arg-type]
    if view == "bandwidth":
        assert list(found.values()) == pytest.approx([rate] * len(found))
        assert min(found) == min(row.case.nbytes for row in results.results)
    else:
        largest = max(found)
        assert found[largest] == pytest.approx(largest * 1.75 / rate)
        fastest = min(row.typical for row in results.results if isinstance(row, Prediction))
        assert min(found.values()) > 0.1 * fastest, "no axis is stretched for times that nobody waits for"
    said = "bound by a GPU's NVLinks (line rate 300 GB/s): "
    assert any(name.replace("\n", " ").startswith(said) for name in labels(figure))


def test_where_switches_add_the_bound_is_above_the_line_rate_and_names_it() -> None:
    """A bus bandwidth counts a ring's bytes, 1.5 of four ranks; the switch has them send 1.25, over 450 GB/s."""
    figure = drawn("bandwidth", on("dgx-h100", 4))
    assert "bound by a GPU's NVLinks (line rate 450 GB/s): 540 GB/s" in [
        name.replace("\n", " ") for name in labels(figure)
    ]
    assert "bound: 540 GB/s" in [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize(("view", "told"), [("bandwidth", "memory copy: 20 GB/s"), ("latency", "memory copy: 10.1 ms")])
@pytest.mark.parametrize("style", STYLES.values(), ids=lambda style: style.name)
def test_memory_is_named_for_what_it_is_in_every_style(view: str, told: str, style: object) -> None:
    """A copy that was measured in the same run, not a data sheet's rate."""
    size = 2**27
    row = measured("two-shot", case(size))
    factor = row.case.collective.bus_factor(4)
    rows = [replace(row, floor=size * factor / 20e9), *(measured("two-shot", case(other)) for other in SIZES[:-1])]
    figure = drawn(view, run(*rows, platform="cpu"), style=style)
    words = [text.get_text() for text in figure.axes[0].texts]
    assert (told in words) == (style is STYLES["screen"]), "where lines have names at their ends"
    in_full = told.replace("copy:", "copy, in the same run:")
    assert in_full in [name.replace("\n", " ") for name in labels(figure)]
    (line,) = bounds(figure.axes[0])
    (value,) = line.get_ydata()  # type: ignore[misc]
    assert value == pytest.approx(20e9 if view == "bandwidth" else size * factor / 20e9)


def test_where_nothing_bounds_nothing_is_drawn() -> None:
    """No line is made up."""
    figure = drawn("bandwidth", run(measured("two-shot", case(64)), measured("two-shot", case(4096))))
    assert not bounds(figure.axes[0])
    assert not [text for text in figure.axes[0].texts if "copy" in text.get_text() or "rate" in text.get_text()]
