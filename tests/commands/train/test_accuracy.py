"""How far plans are from published runs: with one step of a table as its anchor, and without any."""

import functools

import pytest

from collbench.commands.train.setting import FITTED
from tools.training import published
from tools.training.accuracy import Miss, anchor, chosen, given, mean_error, misses, published_seconds
from tools.training.report import EXPERTS, SHARED, fit


@functools.cache
def by_name(name: str, anchored: bool) -> list[Miss]:
    return misses(published.named(name), anchored=anchored)


def found(table: published.Table) -> list[Miss]:
    return by_name(table.name, anchored=False)


def test_with_its_first_row_as_anchor_a_table_is_met() -> None:
    for name in (
        "Megatron-LM on A100, weak scaling",
        "Megatron-Core on H100, weak scaling",
        "PTD-P on A100",
        "Recomputation on A100",
        "MT-NLG 530B on A100",
    ):
        assert mean_error(by_name(name, anchored=True)) <= 0.06, name
    for miss in by_name("ZeRO-3 on A100", anchored=True):  # 144, 88 and 44 TFLOP/s on twice as many GPUs each
        assert abs(miss.published / miss.planned - 1) < 0.15, miss.row.label
    table = published.named("Megatron-LM on A100, weak scaling")
    row = table.rows[4]
    plan = chosen(given(table, row, None, anchor(table, None, 4)), row)
    assert plan.typical == pytest.approx(published_seconds(table, row), rel=1e-3)


def test_without_an_anchor_tables_are_met_those_fitted_to_best() -> None:
    for table in published.TABLES:
        fitted = 0.2 if table.rows[0].model.experts else 0.07  # Hopper's and Blackwell's have one constant
        assert mean_error(found(table)) <= (fitted if table in published.FITTED_TO else 0.2), table.name
    (miss,) = by_name("GPT-3 175B on 1,024 A100", anchored=False)
    assert 0.9 * 32 < miss.planned < 1.1 * 32, "GPT-3 takes 32 seconds a step"


def test_nine_of_ten_published_steps_lie_within_the_spread() -> None:
    for experts, least, spread in ((False, 0.89, FITTED[90].spread), (True, 0.88, FITTED[90].spread_experts)):
        every = [one for table in published.TABLES for one in found(table) if bool(one.row.model.experts) == experts]
        assert least <= sum(abs(one.relative) <= spread for one in every) / len(every) <= 0.95, experts


@pytest.mark.full
def test_the_shipped_constants_are_those_of_the_fit() -> None:
    for generation, constants in fit(published.FITTED_TO).items():
        for name in ("products", *SHARED, *EXPERTS):
            assert getattr(constants, name) == pytest.approx(getattr(FITTED[generation], name), rel=0.01), name
