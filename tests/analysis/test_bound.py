"""What memory allows, as it was measured along with rows; links are tested with the figures that show them."""

import json
import math
from dataclasses import replace

from collbench.analysis.bound import in_words, measured_bound, share
from collbench.flaws import Mismatch
from collbench.measurement import Measurement, Prediction
from collbench.runs.records import to_line, to_result
from tests.conftest import case, measurement

MIB = 2**20


def row(nbytes: int = 128 * MIB, seconds: float = 40e-3, floor: float | None = 20e-3, **changes: object) -> Measurement:
    """A row with what its least traffic took meanwhile."""
    return replace(measurement("two-shot", (seconds,) * 7, nbytes=nbytes, **changes), floor=floor)


def test_the_bound_has_a_time_for_each_size_that_was_measured() -> None:
    rows = [row(floor=floor) for floor in (18e-3, 20e-3, 40e-3)]
    rows += [row(64 * MIB, floor=9e-3), row(MIB, floor=None), row(floor=1e-3, in_place=True)]
    limit = measured_bound(rows, case().kind)
    assert limit
    assert limit.seconds(128 * MIB) == 20e-3
    assert limit.seconds(64 * MIB) == 9e-3
    assert math.isnan(limit.seconds(MIB))
    assert measured_bound(rows, case("broadcast").kind) is None
    # At the largest size: an all-reduce of two ranks reads both inputs and writes both results.
    assert str(measured_bound([row(), row(64 * MIB, floor=9e-3)], case().kind)) == (
        "bound: 20 ms at 128 MiB, in which all ranks' cores read 256 MiB and write 256 MiB of memory"
    )


def test_the_share_is_of_what_was_measured_beside_the_row_and_in_words() -> None:
    limit = measured_bound([row(floor=30e-3)], case().kind)
    assert share(row(), limit, 40e-3) == 0.5
    assert share(row(floor=None), limit, 40e-3) == 0.75
    assert math.isnan(share(row(floor=None), None, 40e-3))
    assert math.isnan(share(Prediction(case(), "nccl", 1e-3, 1e-3, 1e-3), None, 1e-3))
    assert in_words(row()) == "50 % of the bound"
    assert in_words(row(floor=None)) == ""
    assert in_words(replace(row(), mismatch=Mismatch(0, 0, 0, "1", "2", 1), seconds=())) == ""
    assert to_result(json.loads(json.dumps(to_line(row(floor=0.1 + 0.2))))) == row(floor=0.1 + 0.2)
    assert "floor" not in to_line(row(floor=None))
    for odd in (math.nan, math.inf, -1.0, 0, 1e400):
        read = to_result(to_line(row()) | {"floor": odd})
        assert isinstance(read, Measurement)
        assert read.floor is None, odd
