"""The accuracy that docs/model.md states: machines left out whole, constants fitted to the others."""

import dataclasses
import re
from functools import cache

import numpy as np
import pytest

from collbench.model import doubt
from collbench.model.bands import BANDS, CALIBRATED
from collbench.model.constants import CONSTANTS
from tests.conftest import ROOT
from tools.model.accuracy import Errors, errors, fitted, healthy, logs_of, without
from tools.model.classes import CLASSES, by_class
from tools.model.report import MEASURED, PARTS, constants_table, held_out, summary, tables, together, worst
from tools.model.spread import bands, levels, unseen
from tools.model.systems import FOLDER, published


@cache
def found() -> dict[str, list[Errors]]:
    return tables(held_out(), healthy())


@pytest.mark.parametrize(
    ("measured", "part", "most"),
    [
        ("nothing", "one node of NVLinks", 0.095),
        ("nothing", "nodes, above 64 MiB", 0.08),
        ("nothing", "all but Slingshot", 0.12),
        ("nothing", "all", 0.13),
        ("three smallest sizes", "all but Slingshot", 0.07),
        ("three smallest sizes", "all", 0.09),
        ("five sizes", "all but Slingshot", 0.04),
        ("five sizes", "all", 0.05),
        ("five sizes", "64 KiB to 64 MiB", 0.08),
    ],
)
def test_the_median_error_on_machines_left_out_is_within_its_bound(measured: str, part: str, most: float) -> None:
    assert np.median(together(found()[measured], PARTS[part])) <= most


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "model.md").read_text()
    every = found()
    classes = by_class(every["nothing"])
    for lines in (constants_table(CONSTANTS), summary(every), classes, worst(every)):
        assert "\n".join(lines) in page, "run `make model-report`"


def test_a_machine_that_was_left_out_was_not_seen() -> None:
    machines = {sweep.machine for sweep in healthy()}
    assert set(held_out()) == machines
    kept = held_out()["gke-a4"]
    again = without(healthy(), "gke-a4", kept, rounds=2)
    for name, value in dataclasses.asdict(again).items():
        assert getattr(kept, name) == pytest.approx(value, rel=0.03), name
    assert kept != CONSTANTS
    assert held_out()["coreweave-gb200"].eta_rack > 1.1 * CONSTANTS.eta_rack  # of which its racks alone tell


def test_the_constants_are_the_fit_to_all_machines() -> None:
    again = fitted(healthy(), CONSTANTS, rounds=2)
    for name, value in dataclasses.asdict(again).items():
        assert getattr(CONSTANTS, name) == pytest.approx(value, rel=0.03), name


def test_the_bands_are_the_quantiles_of_the_errors() -> None:
    for table, name in ((BANDS, "nothing"), (CALIBRATED, "five sizes")):
        for regime, sizes in bands(found()[name]).items():
            assert np.array(table[regime]) == pytest.approx(np.array(sizes), abs=0.03), (name, regime)


def test_the_spreads_that_diagnose_judges_by_are_those_of_the_errors() -> None:
    for table, name in ((doubt.LEVELS, "nothing"), (doubt.CALIBRATED, "five sizes")):
        for kind, sizes in levels(found()[name]).items():
            assert np.array(table[kind]) == pytest.approx(np.array(sizes), abs=0.03), (name, kind)


def test_nine_of_ten_times_lie_in_the_bands_whatever_the_kind_of_machine() -> None:
    """Of machines that neither constants nor bands have seen."""
    rows = list(unseen(found()["nothing"]))
    for name, among in CLASSES.items():
        held = np.concatenate([lies for one, lies in rows if among(one.sweep)])
        assert 0.86 <= held.mean() <= 0.945, (name, held.mean())  # of RoCE there are 51 rows


def test_no_kind_of_machine_is_further_off_than_by_the_table_or_a_line() -> None:
    every = found()["nothing"]
    rows = [line.split("|")[1:-1] for line in list(by_class(every))[2:]]
    assert len(rows) == len(CLASSES)
    for name, _, off, _, _, table, line in rows:
        assert float(off) < min(float(table), float(line)), name


def test_no_sweep_that_is_degraded_takes_part_in_a_fit() -> None:
    used = {sweep.name for sweep in healthy()}
    degraded = [sweep for sweep in published() if sweep.quality == "degraded"]
    assert degraded
    assert not used & {sweep.name for sweep in degraded}
    slow = [float(np.median(logs_of(sweep, CONSTANTS))) for sweep in degraded if "nccl2441" not in sweep.name]
    assert np.median(slow) > np.log(1.3)


def test_old_records_of_gathered_bytes_are_read_by_their_time() -> None:
    sweep = next(known for known in published() if known.name == "v100sxm3_dgx2_12gpu_1n_allgather_wohlbier")
    nbytes, seconds = sweep.rows[-1]
    assert nbytes * 11 / 12 / seconds == pytest.approx(73.75e9, rel=0.01)


def test_every_sweep_names_its_source() -> None:
    paths = sorted(FOLDER.glob("*.json"))
    assert paths
    for path in paths:
        assert re.search(r'"source": "[^"]', path.read_text()), path


def test_rows_that_calibrate_are_not_counted() -> None:
    for name, (choose, rows) in MEASURED.items():
        for sweep in healthy()[:5]:
            if len(sweep.rows) >= rows:
                chosen = set(choose(sweep))
                assert len(errors(sweep, CONSTANTS, chosen).nbytes) == len(sweep.rows) - len(chosen), name
