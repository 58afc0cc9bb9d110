"""What the ranks find of a wire's errors, by the real command; and what sums of errors come to."""

import numpy as np
import pytest
from click.testing import CliRunner

from collbench import cli
from collbench.measure.study import lost
from collbench.measurement import Measurement
from collbench.runs.file import read
from collbench.runs.records import to_line, to_result
from collbench.wires import WIRES

SUMS = [(name, np.float64) for name in ("errors", "squares", "most", "exact")]


def test_errors_are_relative_to_the_exact_sums() -> None:
    """Two elements, four rounds: errors 1, 1, 1, 1 and 2, -2, 2, -2, of sums that are always 10."""
    sums = np.array([(4, 4, 1, 400), (0, 16, 2, 400)], SUMS)
    found = lost(sums, 4)
    assert (found.most, found.rms, found.bias) == pytest.approx((0.2, np.sqrt(2.5) / 10, np.sqrt(0.5) / 10))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Measurement]:
    out = tmp_path_factory.mktemp("runs") / "out"
    words = f"sweep --on cpu --ranks 2 --impl narrow,two-shot -b 4004 -e 4004 -n 3 --no-plot --out {out}"
    done = CliRunner().invoke(cli.group, words.split())
    assert done.exit_code == 0, done.output
    assert "wires, allreduce, float, sum, 2 ranks, at 3.91 KiB" in done.output
    found = {row.implementation: row for row in read(out / "run.jsonl").results}
    assert all(isinstance(row, Measurement) for row in found.values())
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("wire", WIRES)
def test_feedback_takes_the_bias_away_and_not_the_errors(wire: str, rows: dict[str, Measurement]) -> None:
    """However many rounds there was time for."""
    study = rows[f"narrow-{wire}"].errors
    assert study
    assert 20 <= study.rounds <= 1000
    assert 0 < study.fed.bias < 0.6 * study.plain.bias
    assert study.plain.rms < study.fed.rms < 3 * study.plain.rms
    assert study.plain.bias <= study.plain.rms <= study.plain.most


def test_fewer_bits_are_worse(rows: dict[str, Measurement]) -> None:
    by_rms = sorted(WIRES, key=lambda name: rows[f"narrow-{name}"].errors.plain.rms)  # type: ignore[union-attr]
    assert by_rms == ["half", "bfloat16", "int8", "e4m3", "topk"]


def test_what_is_exact_has_no_errors_and_a_row_keeps_what_it_has(rows: dict[str, Measurement]) -> None:
    assert rows["two-shot"].errors is None
    assert "errors" not in to_line(rows["two-shot"])
    for row in rows.values():
        assert to_result(to_line(row)) == row
