"""Rows are shown as they arrive, alike in every command."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import pytest
from click.testing import CliRunner

from collbench.cli._live_table import LiveTable
from collbench.flaws import Mismatch
from collbench.measurement import Failed, Reported, Result, Skipped
from tests.conftest import case, measurement

RED = "\x1b[31m"
WRONG = Mismatch(1, 7, 0, "3.5", "4.5", 12)


@contextmanager
def output(color: bool) -> Iterator[io.BytesIO]:
    """What is printed inside, as to a terminal that knows colours, or to none."""
    wanted = mock.patch("collbench.cli._live_table.coloured", return_value=color)
    with CliRunner().isolation(color=color) as (stdout, *_), wanted:
        yield stdout


def shown(*rows: tuple[str, Result], color: bool = False, heading: str = "columns") -> str:
    """What is printed of results under these titles."""
    with output(color) as stdout:
        table = LiveTable()
        for title, result in rows:
            table.show(title, heading, [(result, f"row of {result.implementation}")])
        table.close()
        return stdout.getvalue().decode()


def test_columns_are_named_where_the_title_changes() -> None:
    """Once for all rows below it, and not at all where there is no heading."""
    rows = [("one", measurement("mpi")), ("one", measurement("nccl")), ("two", measurement("mpi"))]
    assert shown(*rows) == "\none\ncolumns\nrow of mpi\nrow of nccl\n\ntwo\ncolumns\nrow of mpi\n"
    assert shown(*rows, heading="") == "row of mpi\nrow of nccl\nrow of mpi\n"


def test_a_skip_is_said_once_for_a_title() -> None:
    """Another reason, another implementation and another title are news."""
    skips = [Skipped(case(), name, "cpu", reason) for name, reason in (("a", "x"), ("a", "x"), ("a", "y"), ("b", "x"))]
    said = shown(*(("one", skip) for skip in skips), ("two", skips[0]))
    assert said.count("row of a") == 3
    assert said.count("row of b") == 1


@pytest.mark.parametrize(
    ("result", "red"),
    [
        (measurement("mpi"), False),
        (measurement("mpi", (), nbytes=8), False),
        (Failed(case(), "mpi", "cpu", "a rank died"), True),
        (Skipped(case(), "FAILED", "cpu", "WRONG is but a word here"), False),
        (Reported(case(), "mpi", "cpu", 1e-6, "mean", wrong_elements=3), True),
        (Reported(case(), "mpi", "cpu", 1e-6, "mean", wrong_elements=None), False),
    ],
)
def test_what_is_wrong_or_failed_is_red(result: Result, red: bool) -> None:
    """By what the result is, whatever its words."""
    assert (RED in shown(("one", result), color=True)) is red


def test_a_wrong_measurement_is_red() -> None:
    """One of two settings is enough, and only its own line."""
    pair = [(measurement("mpi"), "right"), (replace(measurement("mpi"), mismatch=WRONG), "wrong")]
    with output(color=True) as stdout:
        LiveTable().show("one", "columns", pair)
        said = stdout.getvalue().decode()
    assert f"{RED}wrong" in said
    assert f"{RED}right" not in said
