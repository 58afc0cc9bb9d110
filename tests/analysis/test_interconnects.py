"""Which interconnect is fastest at which size, and nothing is told as a fact that intervals do not show."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.analysis.headers import several_machines
from collbench.analysis.interconnects import (
    Interconnect,
    InterconnectTable,
    can_have,
    common_ranks,
    of_run,
    of_runs,
    short_names,
    tables,
)
from collbench.results import Measurement, Note, Prediction, Reported, Skipped, Timed
from collbench.runfile.schema import Header
from collbench.runfile.store import Run
from collbench.topology.files import load
from tests.conftest import case, measurement

Times = Mapping[int, float]


def measured(times: Times, halfwidth: float = 0.0, name: str = "mpi", ranks: int = 2) -> list[Measurement]:
    shares = [1 + halfwidth * place / 3 for place in range(-3, 4)]
    return [
        measurement(name, tuple(seconds * share for share in shares), nbytes=nbytes, ranks=ranks)
        for nbytes, seconds in times.items()
    ]


def predicted(times: Times, factor: float = 2.0, name: str = "nccl", ranks: int = 2) -> list[Prediction]:
    return [
        Prediction(case(nbytes=nbytes, ranks=ranks), name, seconds, seconds / factor, seconds * factor, "ring", "ll")
        for nbytes, seconds in times.items()
    ]


def table(*curves: list[Timed]) -> InterconnectTable:
    (found,) = tables([Interconnect(name, name.upper(), tuple(rows)) for name, rows in zip("abcd", curves)])  # noqa: B905
    return found


FAST_SMALL = {8: 1.0, 64: 2.0, 512: 40.0}
FAST_LARGE = {8: 4.0, 64: 4.0, 512: 8.0}


def test_the_fastest_is_told_by_ranges_of_sizes_or_as_likely() -> None:
    found = table(measured(FAST_SMALL), measured(FAST_LARGE))
    assert found.winning_ranges == ["a 8 B to 64 B, by 2x .. 4x", "b 512 B, by 5x"]
    assert found.verdict() == [
        "fastest: a 8 B to 64 B, by 2x .. 4x; b 512 B, by 5x",
        "b loses to a up to 64 B and wins from 512 B on: 0.25x at 8 B, 5x at 512 B",
    ]
    found = table(predicted(FAST_SMALL, 1.5), predicted(FAST_LARGE, 1.5))
    assert found.winning_ranges == ["a 8 B, by 4x", "likely a 64 B, by 2x", "b 512 B, by 5x"]
    assert found.verdict()[0] == "should be fastest: a 8 B, by 4x; likely a 64 B, by 2x; b 512 B, by 5x"
    assert "only likely at 64 B, where the bands overlap" in found.verdict()[1]


def test_one_that_is_fastest_at_all_sizes_is_named_first_and_a_lead_counts_from_the_slowest_of_those_level() -> None:
    assert table(predicted({8: 1.0, 64: 1.0}, 1.5), predicted({8: 2.0, 64: 4.0}, 1.5)).verdict()[0] == (
        "a should be fastest: likely 8 B, by 2x; 64 B, by 4x"
    )
    assert table(measured({8: 1.0, 64: 1.0}), measured({8: 2.0, 64: 2.0})).verdict()[0] == (
        "a is fastest: 8 B to 64 B, by 2x"
    )
    three = table(predicted({8: 1.0}), predicted({8: 1.04}), predicted({8: 2.08}))
    assert three.verdict()[0] == "should be fastest: likely a or b (not distinguishable) 8 B, by 2x"


def test_measurements_whose_intervals_overlap_are_not_told_apart() -> None:
    found = table(measured(FAST_SMALL), measured({8: 1.1, 64: 2.1, 512: 8.0}, 0.3))
    assert found.winning_ranges == ["a or b (not distinguishable) 8 B to 64 B", "b 512 B, by 5x"]
    assert found.lines[0].cells[1].ratio == "~0.91x"  # type: ignore[union-attr]
    found = table(measured({8: 1.0, 64: 4.0, 512: 40.0}), measured(FAST_LARGE))
    assert found.winning_ranges == ["a 8 B, by 4x", "a or b (not distinguishable) 64 B", "b 512 B, by 5x"]
    for seconds in (1.0, 1.01):
        found = table(predicted({8: 1.0}), predicted({8: seconds}))
        assert found.lines[0].ranking.names == ("a", "b"), seconds
        assert "not distinguishable" in found.verdict()[0], seconds
    rows = [Reported(case(nbytes=nbytes), "nccl", "gpu", seconds, "mean") for nbytes, seconds in ((8, 1.08), (64, 2.0))]
    found = table(measured({8: 1.0, 64: 1.0}), rows)
    assert [line.ranking.names for line in found.lines] == [("a", "b"), ("a",)]
    assert found.interconnects[1].origin == "imported"


def test_ratios_are_to_the_first_with_two_digits_and_no_exponent_and_a_third_may_win() -> None:
    found = table(measured({8: 2.0}), measured({8: 4.0}), measured({8: 1.0}))
    assert [cell.ratio for cell in found.lines[0].cells if cell] == ["", "0.5x", "2x"]
    assert found.lines[0].ranking.names == ("c",)
    assert len(found.contests) == 2
    for factor, told in ((3.456, "3.5x"), (123.4, "120x"), (0.0123, "0.012x")):
        found = table(measured({8: factor}), measured({8: 1.0}))
        assert found.lines[0].cells[1].ratio == told  # type: ignore[union-attr]


def test_ranks_and_sizes_that_two_of_them_have_are_taken_and_every_kind_of_case_has_a_table() -> None:
    apart = table(measured({8: 1.0}, ranks=2), measured({8: 1.0}, ranks=4))
    assert (apart.ranks, apart.title) == ((2, 4), "allreduce, float, sum")
    both = [*measured({8: 1.0}, ranks=2), *measured({8: 5.0}, ranks=8)]
    common = table(both, measured({8: 1.0}, ranks=2))
    assert (common.ranks, common.title) == ((2, 2), "allreduce, float, sum, 2 ranks")
    assert common.lines[0].cells[0].row.typical == 1.0  # type: ignore[union-attr]
    found = table(measured({8: 1.0, 64: 1.0}), measured({64: 2.0, 512: 1.0}), measured({64: 3.0}))
    assert [line.nbytes for line in found.lines] == [64]
    broadcast = [measurement(collective="broadcast", seconds=(seconds,) * 7) for seconds in (1.0, 2.0)]
    those = [Interconnect(name, "", (row, *measured({8: 1.0}))) for name, row in zip("ab", broadcast, strict=True)]
    assert [found.kind.collective.name for found in tables(those)] == ["broadcast", "allreduce"]
    assert tables([Interconnect("a", "", (broadcast[0],)), Interconnect("b", "", tuple(measured({8: 1.0})))]) == []


def test_an_interconnect_is_as_fast_as_its_library_unless_others_are_wanted() -> None:
    rows = [*measured({8: 4.0}), *measured({8: 1.0}, name="one-shot")]
    assert table(rows, measured({8: 2.0})).lines[0].ranking.names == ("b",)
    libraries = [*measured({8: 1.0}, name="mpi@intel"), *rows, *measured({8: 5.0}, name="mpi@openmpi")]
    assert table(libraries, measured({8: 2.0})).lines[0].cells[0].row.implementation == "mpi@intel"  # type: ignore[union-attr]
    asked = [Interconnect("a", "", tuple(rows)), Interconnect("b", "", tuple(measured({8: 2.0}, name="two-shot")))]
    (found,) = tables(asked, lambda name: name in ("one-shot", "two-shot"))
    assert found.lines[0].ranking.names == ("a",)
    assert tables(asked, lambda name: name == "nccl") == []
    bound = [replace(row, note=Note(bound=True)) for row in predicted({8: 0.1}, name="ring-host")]
    narrow = predicted({8: 0.1}, name="narrow-int8")
    found = table([*bound, *narrow, *predicted({8: 3.0}, name="two-shot")], predicted({8: 1.0}))
    assert found.lines[0].cells[0].row.implementation == "two-shot"  # type: ignore[union-attr]
    assert tables([Interconnect("a", "", tuple(bound)), Interconnect("b", "", tuple(predicted({8: 1.0})))]) == []


def run(path: str, rows: list[Timed], complete: bool = True, **topology: object) -> Run:
    return Run(Path(path), Header.from_json({"topology": topology}), tuple(rows), complete)  # type: ignore[arg-type]


def test_runs_are_named_by_their_folders_and_a_part_of_a_run_is_called_so() -> None:
    one, other = run("x/a/run.jsonl", measured({8: 1.0})), run("y/a/run.jsonl", measured({8: 2.0}), complete=False)
    assert [found.name for found in of_runs([one, other])] == ["x/a/run.jsonl", "y/a/run.jsonl"]
    assert [found.name for found in of_runs([one, one])] == ["a"]
    assert of_run("b", other).remarks == ("the run was cut off after 1 row",)
    assert short_names(["dgx-h100", "own/mine.toml", "results/old"]) == ["dgx-h100", "mine", "old"]
    skipped = Skipped(case(nbytes=8), "mpi", "cpu", "no compiler")  # no row, nor is one in which no time passed
    found = of_run("a", Run(Path("a/run.jsonl"), Header(), (skipped, *measured({8: 1.0, 64: 0.0})), True))
    assert len(found.results) == 1


def test_machines_are_told_apart_by_what_ranks_live_on_and_not_by_ranks_or_hosts() -> None:
    def header(socket: str, ranks: int, **more: object) -> Header:
        sockets = [{"name": socket}]
        return Header.from_json({"topology": {"platform": "cpu", "ranks": ranks, "sockets": sockets, **more}})

    assert not several_machines([header("Xeon", 2, name="2 ranks"), header("Xeon", 4, name="4 ranks")])
    assert several_machines([header("Xeon", 2), header("EPYC", 2)])
    assert several_machines([header("Xeon", 2), header("", 2, model=True, name="DGX H100")])
    assert not several_machines([header("Xeon", 2), Header()])  # which says nothing of its machine
    for one, other, apart in (
        ("8 x NVIDIA H100", "4 x NVIDIA H100", False),
        ("8 x NVIDIA H100", "8 x NVIDIA H200", True),
        ("16 x NVIDIA H100 on 2 nodes", "8 x NVIDIA H100", True),
        ("8 x unknown GPU", "8 x NVIDIA H200", False),
    ):
        named = [Header.from_json({"topology": {"platform": "gpu", "name": name}}) for name in (one, other)]
        assert several_machines(named) is apart, (one, other)
    listed = {"platform": "gpu", "name": "2 ranks on 2 x NVIDIA H100", "gpus": [{"name": "NVIDIA H100"}] * 2}
    log = {"platform": "gpu", "name": "8 x NVIDIA H100"}
    assert not several_machines([Header.from_json({"topology": topology}) for topology in (listed, log)])


def test_records_are_json_and_say_who_is_fastest_and_how_surely() -> None:
    found = [
        *table(measured(FAST_SMALL), predicted(FAST_LARGE, 1.5)).records(),
        *table(measured({8: 1.0}), [Reported(case(nbytes=8), "nccl", "gpu", 1.0, "mean")]).records(),
    ]
    json.dumps(found, allow_nan=False)
    assert [(row["nbytes"], row["interconnect"], row["origin"], row["fastest"]) for row in found] == [
        (8, "a", "measured", "surely"),
        (8, "b", "predicted", ""),
        (64, "a", "measured", "surely"),
        (64, "b", "predicted", ""),
        (512, "a", "measured", ""),
        (512, "b", "predicted", "surely"),
        (8, "a", "measured", "perhaps"),
        (8, "b", "imported", "perhaps"),
    ]
    assert found[0]["ratio"] is None
    assert found[1]["ratio"] == pytest.approx(0.25)
    assert (found[1]["low"], found[1]["high"]) == pytest.approx((4 / 1.5, 6.0))


def test_all_have_the_largest_number_of_ranks_that_one_has_and_all_can_have() -> None:
    h100, ethernet, quad = load("dgx-h100"), load("ethernet-100g-tcp"), load("gh200-quad")
    alone = replace(quad, nics=None)
    assert common_ranks([h100, ethernet]) == 16
    assert common_ranks([h100, quad]) == 8
    assert common_ranks([h100, ethernet, alone]) == 4
    assert common_ranks([]) is None
    assert can_have(h100, 24)
    assert not can_have(h100, 12)
    assert can_have(replace(h100.of(2), nics=None), 16)
