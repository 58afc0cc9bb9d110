"""What the ranks find of a wire's errors, by the real command; and what sums of errors come to."""

from pathlib import Path

import numpy as np
import pytest

from collbench.datatypes import WIRES
from collbench.measure.wire_errors import lost
from collbench.results.collectives import Measurement
from collbench.runfile.schema import to_line, to_result
from collbench.runfile.store import read
from tests.conftest import Command


def test_errors_are_relative_to_the_exact_sums() -> None:
    sums = np.array(
        [(4, 4, 1, 400), (0, 16, 2, 400)], [(name, float) for name in ("errors", "squares", "most", "exact")]
    )
    found = lost(sums, 4)
    assert (found.most, found.rms, found.bias) == pytest.approx((0.2, np.sqrt(2.5) / 10, np.sqrt(0.5) / 10))


def test_fewer_bits_are_worse_and_feedback_takes_the_bias_away_but_not_the_errors(
    here: Command, tmp_path: Path
) -> None:
    options = ("--impl", "narrow,two-shot", "-b", "4004", "-e", "4004", "-n", "3", "--no-plot", "--out", "out")
    done = here("sweep", "--on", "cpu", "--ranks", "2", *options)
    assert done.returncode == 0, done.stderr
    rows = {
        row.implementation: row for row in read(tmp_path / "out" / "run.jsonl").results if isinstance(row, Measurement)
    }
    undisturbed = [row for name, row in rows.items() if name.startswith("narrow-") and not row.disturbed]
    assert ("wires, allreduce, float, sum, 2 ranks, at 3.91 KiB" in done.stdout) is bool(undisturbed)
    rms = {}
    for wire in WIRES:
        study = rows[f"narrow-{wire}"].errors
        assert study, wire
        assert 20 <= study.rounds <= 1000, wire
        assert 0 < study.fed.bias < 0.6 * study.plain.bias, wire
        assert study.plain.rms < study.fed.rms < 3 * study.plain.rms, wire
        assert study.plain.bias <= study.plain.rms <= study.plain.most, wire
        rms[wire] = study.plain.rms
    assert sorted(rms, key=rms.__getitem__) == ["bfloat16", "e4m3", "topk"]
    assert rows["two-shot"].errors is None, "what is exact has no errors"
    assert "errors" not in to_line(rows["two-shot"])
    assert all(to_result(to_line(row)) == row for row in rows.values())
