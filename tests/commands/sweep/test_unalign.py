"""`collbench sweep --unalign`: misaligned buffers, checked by real ranks."""

from pathlib import Path

import pytest

from collbench.results import Measurement
from collbench.runfile.store import read
from tests.conftest import Command


@pytest.mark.parametrize(("types", "unalign", "place"), [("int8,double", "1", ""), ("half,float", "3", "--in-place")])
def test_every_implementation_is_right_on_late_buffers_of_real_ranks(
    types: str, unalign: str, place: str, here: Command, tmp_path: Path
) -> None:
    words = f"sweep --on cpu --op allreduce,allgather,reducescatter -d {types} -u {unalign} {place} --impl all,narrow"
    done = here(
        *words.split(), "-b", "40", "-e", "9000", "-f", "225", "-n", "1", "--starts", "1", "--no-plot", "-o", "o"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [row for row in read(tmp_path / "o").results if isinstance(row, Measurement)]
    assert len({row.implementation for row in rows}) > 9
    assert all(row.right for row in rows)
    assert {(row.case.unalign, row.case.in_place) for row in rows} == {(int(unalign), bool(place))}


def test_what_no_guard_holds_is_refused_and_a_prediction_knows_nothing_of_it(here: Command, tmp_path: Path) -> None:
    assert here("sweep", "--on", "cpu", "-u", "512").returncode == 2
    done = here("sweep", "--on", "dgx-h100", "-e", "64", "-u", "4", "--no-plot", "-o", "o")
    assert "without effect on a described system: --unalign" in done.stderr
    assert {row.case.unalign for row in read(tmp_path / "o").results} == {0}
