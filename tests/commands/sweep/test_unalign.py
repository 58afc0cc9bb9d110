"""`collbench sweep --unalign`: misaligned buffers, checked by real ranks; and rows that are of no other case."""

from pathlib import Path

import pytest

from collbench.results import Measurement
from collbench.runfile.schema import record
from collbench.runfile.store import read
from tests.commands.made_up_ranks import made_up_ranks
from tests.conftest import Command

__all__ = ["made_up_ranks"]
ONE = ("sweep", "--on", "cpu", "--impl", "mpi,two-shot", "-b", "64", "-e", "64", "-n", "7", "--no-plot")


@pytest.mark.parametrize(("types", "unalign", "place"), [("int8,double", "1", ""), ("half,float", "3", "--in-place")])
def test_every_implementation_is_right_on_late_buffers_of_real_ranks(
    types: str, unalign: str, place: str, here: Command, tmp_path: Path
) -> None:
    """With elements of 1 to 8 bytes, none of which begins where a pack of 16 would."""
    words = f"sweep --on cpu --op allreduce,allgather,reducescatter -d {types} -u {unalign} {place} --impl all,narrow"
    done = here(
        *words.split(), "-b", "40", "-e", "9000", "-f", "225", "-n", "1", "--starts", "1", "--no-plot", "-o", "o"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [row for row in read(tmp_path / "o").results if isinstance(row, Measurement)]
    assert len({row.implementation for row in rows}) > 9
    assert all(row.right for row in rows)
    assert {(row.case.unalign, row.case.in_place) for row in rows} == {(int(unalign), bool(place))}


@pytest.mark.usefixtures("made_up_ranks")
def test_misaligned_rows_are_cases_of_their_own(here: Command, tmp_path: Path) -> None:
    """The header says so, too; no row is compared with an aligned one, and the refusal names what differs."""
    for name, words in (("aligned", ()), ("late", ("--unalign", "2"))):
        done = here(*ONE, *words, "-o", name)
        assert done.returncode == 0, done.stderr
        assert ("misaligned by 2 elements" in done.stdout) == (name == "late")
    aligned, late = read(tmp_path / "aligned"), read(tmp_path / "late")
    assert (aligned.header.sweep.unalign, late.header.sweep.unalign) == (0, 2)
    assert "unalign" not in (tmp_path / "aligned" / "run.jsonl").read_text()
    assert not {row.case for row in aligned.results} & {row.case for row in late.results}
    assert {record(row)["unalign"] for row in late.results} == {2}
    refused = here("compare", "aligned", "late")
    assert refused.returncode == 2
    assert "unalign2" in refused.stderr


def test_what_cannot_be_is_refused_and_a_prediction_knows_nothing_of_it(here: Command, tmp_path: Path) -> None:
    for word in ("-1", "512", "half"):
        assert here(*ONE, "-u", word).returncode == 2
    done = here("sweep", "--on", "dgx-h100", "-e", "64", "-u", "4", "--no-plot", "-o", "o")
    assert "without effect on a described system: --unalign" in done.stderr
    assert {row.case.unalign for row in read(tmp_path / "o").results} == {0}
