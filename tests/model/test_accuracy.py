"""The accuracy that docs/model.md states: machines left out whole, constants fitted to the others."""

from functools import cache

import numpy as np
import pytest

from collbench.model import error_bands
from collbench.model.constants import CONSTANTS
from collbench.model.error_bands import BANDS, CALIBRATED_BANDS
from tests.conftest import ROOT
from tools.model.accuracy import Errors, fitted, healthy, logs_of
from tools.model.classes import CLASSES, by_class
from tools.model.report import PARTS, constants_table, held_out, summary, tables, together, worst
from tools.model.spread import bands, levels, unseen
from tools.model.systems import published


@cache
def found() -> dict[str, list[Errors]]:
    return tables(held_out(), healthy())


def test_the_median_error_on_machines_left_out_is_within_its_bound() -> None:
    for measured, part, most in (
        ("nothing", "one node of NVLinks", 0.095),
        ("nothing", "nodes, above 64 MiB", 0.08),
        ("nothing", "all but Slingshot", 0.12),
        ("nothing", "all", 0.13),
        ("three smallest sizes", "all but Slingshot", 0.07),
        ("three smallest sizes", "all", 0.09),
        ("five sizes", "all but Slingshot", 0.04),
        ("five sizes", "all", 0.05),
        ("five sizes", "64 KiB to 64 MiB", 0.08),
    ):
        assert np.median(together(found()[measured], PARTS[part])) <= most, (measured, part)


def test_bands_and_spreads_are_the_quantiles_of_the_errors_and_hold_nine_of_ten_of_any_kind() -> None:
    for name, shipped, judged in (
        ("nothing", BANDS, error_bands.LEVELS),
        ("five sizes", CALIBRATED_BANDS, error_bands.CALIBRATED_LEVELS),
    ):
        for regime, sizes in bands(found()[name]).items():
            assert np.array(shipped[regime]) == pytest.approx(np.array(sizes), abs=0.03), (name, regime)
        for kind, sizes in levels(found()[name]).items():
            assert np.array(judged[kind]) == pytest.approx(np.array(sizes), abs=0.03), (name, kind)
    rows = list(unseen(found()["nothing"]))
    for name, among in CLASSES.items():
        held = np.concatenate([lies for one, lies in rows if among(one.sweep)])
        assert 0.86 <= held.mean() <= 0.945, (name, held.mean())  # of RoCE there are 51 rows


def test_no_sweep_that_is_degraded_takes_part_in_a_fit_and_old_records_are_read_by_their_time() -> None:
    used = {sweep.name for sweep in healthy()}
    degraded = [sweep for sweep in published() if sweep.quality == "degraded"]
    assert degraded
    assert not used & {sweep.name for sweep in degraded}
    slow = [float(np.median(logs_of(sweep, CONSTANTS))) for sweep in degraded if "nccl2441" not in sweep.name]
    assert np.median(slow) > np.log(1.3)
    old = next(known for known in published() if known.name == "v100sxm3_dgx2_12gpu_1n_allgather_wohlbier")
    nbytes, seconds = old.rows[-1]  # whose gathered bytes are read by their time
    assert nbytes * 11 / 12 / seconds == pytest.approx(73.75e9, rel=0.01)


def test_the_constants_are_those_of_the_page_and_leaving_an_operator_out_changes_them_little() -> None:
    assert "\n".join(constants_table(CONSTANTS)) in (ROOT / "docs" / "model.md").read_text(), "run `make model-report`"
    assert set(held_out()) == {sweep.operator for sweep in healthy()}
    kept = held_out()["google"]
    assert kept != CONSTANTS
    assert held_out()["coreweave"]["eta_rack"] > 1.1 * CONSTANTS["eta_rack"]  # of which its racks alone tell
    for name, value in CONSTANTS.items():
        assert kept[name] == pytest.approx(value, rel=0.25), name


@pytest.mark.full
@pytest.mark.parametrize("left_out", ["", "google"])
def test_the_constants_are_the_fit_to_all_machines_and_to_all_but_one(left_out: str) -> None:
    known = held_out()[left_out] if left_out else CONSTANTS
    again = fitted([sweep for sweep in healthy() if sweep.operator != left_out], known, rounds=2)
    for name, value in again.items():
        assert known[name] == pytest.approx(value, rel=0.03), name


@pytest.mark.full
def test_the_page_has_the_tables_of_the_code_and_no_kind_is_further_off_than_by_the_table_or_a_line() -> None:
    page, every = (ROOT / "docs" / "model.md").read_text(), found()
    classes = list(by_class(every["nothing"]))
    for lines in (summary(every), classes, worst(every)):
        assert "\n".join(lines) in page, "run `make model-report`"
    rows = [line.split("|")[1:-1] for line in classes[2:]]
    assert len(rows) == len(CLASSES)
    for name, _, off, _, _, table, line in rows:
        assert float(off) < min(float(table), float(line)), name
