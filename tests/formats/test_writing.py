"""What is written reads back as it was; what came from a format goes back into it word for word."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from collbench.collectives import COLLECTIVES
from collbench.errors import UsageError
from collbench.formats import find_format, written
from collbench.formats.exported import select
from collbench.formats.nccl_tests.loose_json import parse
from collbench.formats.nccl_tests.write_text import shrunk
from collbench.formats.osu_tests import MEASURED
from collbench.formats.source import decode
from collbench.results import Failed, Measurement, Mismatch, Observed, Prediction, Result
from collbench.runfile.header import Header
from collbench.runfile.store import Run
from tests.conftest import case
from tests.formats.goldens import DATA, GOLDENS, golden_tests, parsed, reported, run_of


def export(run: Run, name: str, implementation: str | None = None) -> tuple[str, list[str]]:
    left: list[str] = []
    wanted = find_format(name, written())
    assert wanted.write
    return wanted.write(select(run, implementation, wanted.mixed, left.append)), left


def own_run(*results: Result, **header: object) -> Run:
    topology = {"name": "2 ranks on 1 x AMD EPYC, 2 cores", "platform": "cpu", "ranks": 2, "gpus": []}
    facts = {"topology": topology | {"sockets": [{"name": "AMD EPYC"}]}, "environment": {"host": "vm"}}
    return Run(Path("run.jsonl"), Header.from_json(facts | header), results, True)


def measured(nbytes: int, *seconds: float, name: str = "ring-flags", **changes: object) -> Measurement:
    return Measurement(case(nbytes=nbytes, **changes), name, "cpu", 1, seconds)  # type: ignore[arg-type]


OWN = (
    measured(8, 2.5e-6, 2.75e-6, 2.25e-6),
    measured(8, 3.5e-6, in_place=True),
    measured(1024, 4.25e-6, 4.75e-6),
    measured(2**20, 123.25e-6, collective="broadcast", root=1),
    measured(2**20, 99.5e-6, collective="allgather"),
)


def rows_of(text: str) -> list[str]:
    stamp = r"\s*(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s+)?"
    return [line for line in text.splitlines() if re.match(stamp + r"\d+(\s+\d+\s+[a-z]|\s+[\d.]+)", line)]


def test_rows_go_back_byte_for_byte_but_for_what_other_programs_put_between_them() -> None:
    for name, golden in GOLDENS.items():
        if name.endswith(".txt") and "warnings" not in name:
            text, _ = export(run_of(golden_tests(name)), golden.format)
            rows = rows_of((DATA / name).read_text())
            kept = rows[golden.left_out :] if "hypercube" in name else rows[: len(rows) - golden.left_out]
            assert kept, name
            assert rows_of(text) == kept, name
    text, left = export(run_of(golden_tests("nccl_tests_stamped_percentiles_warnings.txt")), "nccl-tests")
    first, second, last = rows_of(text)
    assert first == (
        "           8             2     float     sum      -1"
        "    12.90    0.00    0.00       0    11.20    20.13    20.13    12.31"
        "    12.87    0.00    0.00       0    11.19    19.80    19.80     9.87  2026-07-09 10:00:00"
    )
    assert (second.split()[5], last.split()[-3:]) == ("13.10", ["11.90", "2026-07-09", "10:00:02"])
    assert "NCCL WARN" not in text
    assert not left
    assert export(run_of(golden_tests("tidy.csv")), "csv")[0] == (DATA / "tidy.csv").read_text()


def test_json_goes_back_as_the_same_values() -> None:
    for name in (name for name, golden in GOLDENS.items() if golden.format == "nccl-tests-json"):
        before, complete = parse(decode(name, (DATA / name).read_bytes()), "results")
        text, _ = export(run_of(golden_tests(name)), "nccl-tests-json")
        after, _ = parse(decode(name, text.encode()), "results")
        assert repr(after["results"]) == repr(before["results"]), "as text: nan is not nan"
        if complete:
            assert list(after) == list(before), name
            kept = {key for key in before if key != "env"}
            assert repr({key: after[key] for key in kept}) == repr({key: before[key] for key in kept}), name


def test_bandwidths_are_written_where_messages_have_a_size() -> None:
    for name, collective in COLLECTIVES.items():
        run = own_run(measured(1024, 4.25e-6, 4.75e-6, collective=name))
        (tidy,) = csv.DictReader(io.StringIO(export(run, "csv")[0]))
        (record,) = run.rows()
        for rate in ("algbw", "busbw"):
            assert bool(tidy[rate]) == collective.sized, name
            assert (record[rate] is not None) == collective.sized, name


def test_what_is_written_reads_back_to_the_same_values_as_far_as_a_format_can_hold_them() -> None:
    for name in written():
        held = [row for row in OWN if name != "nccl-tests-json" or row.case.collective.name == "allreduce"]
        held = [row for row in held if name != "osu" or not (row.case.in_place or row.case.root)]
        text, left = export(own_run(*(held if name == "nccl-tests-json" else OWN)), name)
        read = {row.case: row for row in reported(parsed(text, name=name))}
        assert set(read) == {row.case for row in held}, name
        for row in held:
            again = read[row.case]
            assert (again.implementation, again.platform) == (row.implementation, row.platform), name
            expected = row.typical if name == "csv" else sum(row.seconds) / len(row.seconds)
            assert again.seconds == pytest.approx(expected, rel=0, abs=0.0051e-6), name
            assert again.wrong_elements in (0, None)
        assert len(left) == (2 if name == "osu" else 0)


def test_every_import_can_be_written_as_every_format_and_read_again_to_the_same_times() -> None:
    for golden, facts in GOLDENS.items():
        run = run_of(golden_tests(golden))
        assert all(isinstance(result, Observed) for result in run.results), golden
        for name in written():
            for implementation in dict.fromkeys(result.implementation for result in run.results):
                if name == "nccl-tests-json" and len(run.header.imported.tests) > 1:
                    with pytest.raises(UsageError, match="one test a file"):
                        export(run, name, implementation)
                    continue
                text, left = export(run, name, implementation)
                if not text.strip():
                    assert left, (golden, name)
                    continue
                times = {row.seconds for row in run.results if row.implementation == implementation}  # type: ignore[union-attr]
                for row in reported(parsed(text, facts.ranks, name)):
                    near = min(abs(row.seconds - duration) for duration in times)
                    assert near <= 0.005e-6 or near <= 0.05 * row.seconds, (golden, name)


def test_places_share_a_row_and_a_missing_one_is_not_made_up() -> None:
    text, _ = export(own_run(OWN[0], OWN[1], OWN[2]), "nccl-tests")
    both, alone = rows_of(text)
    assert both.split()[5:] == ["2.50", "0.00", "0.00", "0", "3.50", "0.00", "0.00", "0"]
    assert alone.split()[5:] == ["4.50", "0.23", "0.23", "0", "N/A", "N/A", "N/A", "N/A"]
    assert len(both) == len(alone) + 1  # nccl-tests' own N/A is a character narrower


GPUS: dict[str, Any] = {
    "platform": "gpu",
    "gpus": [{"name": f"H{bus}00", "bus_id": f"0000:0{bus}:00.0", "host": host} for bus, host in ("aX", "bX", "aY")],
    "places": [0, 1, 2, 2],
}


def told(text: str) -> str:
    (line,) = re.findall(r"^# nThread (.*)$", text, re.MULTILINE)
    return str(line)


def test_every_rank_is_listed_with_its_own_gpu() -> None:
    one = Measurement(case(ranks=4), "nccl", "gpu", 1, (1e-6,))
    text, _ = export(own_run(one, topology=GPUS), "nccl-tests")
    assert re.findall(r"^#  Rank +(\d) .* on +(\S+) device +(\d) \[(.*)\] (.*)$", text, re.MULTILINE) == [
        ("0", "X", "0", "0000:0a:00", "Ha00"),
        ("1", "X", "1", "0000:0b:00", "Hb00"),
        ("2", "Y", "0", "0000:0a:00", "Ha00"),
        ("3", "Y", "0", "0000:0a:00", "Ha00"),
    ]
    unknown = GPUS | {"gpus": [{"name": "H100", "bus_id": "over there"}]}
    assert "[0000:00:00] H100" in export(own_run(one, topology=unknown), "nccl-tests")[0]


def test_what_a_test_was_told_is_written_as_it_was_asked_for() -> None:
    sweep: dict[str, Any] = {
        "asked": {"first": 7, "last": 100, "factor": 4.0},
        "sampling": {"warmup": 5, "graph": True},
    }
    rows = measured(4, 1e-6, 2e-6), measured(28, 1e-6, 2e-6)
    text, _ = export(own_run(*rows, sweep=sweep), "nccl-tests")
    assert told(text) == (
        "1 nGpus 2 minBytes 7 maxBytes 100 step: 4(factor) "
        "warmup iters: 5 iters: 2 agg iters: 1 validation: 1 graph: 0"  # which a CPU has none of
    )
    sweep["asked"] = {"first": 4, "last": 100, "step": 24}
    assert " step: 24(bytes) " in told(export(own_run(*rows, sweep=sweep), "nccl-tests")[0])
    older, _ = export(own_run(*rows), "nccl-tests")
    assert " minBytes 4 maxBytes 28 step: 7(factor) warmup iters: 1 " in told(older)


def test_gpus_are_those_of_a_process_and_the_json_lists_a_device_for_each() -> None:
    one = Measurement(case(ranks=4), "nccl", "gpu", 1, (1e-6,))
    headers: list[tuple[dict[str, Any], int]] = [
        ({"topology": GPUS | {"gpus": [{"name": "H100"}]}}, 4),
        ({"topology": GPUS}, 1),  # of a launcher, as the names of nodes tell
        ({"processes": 4}, 1),
        ({}, 4),
    ]
    for header, gpus in headers:
        graphs = header | {"sweep": {"sampling": {"graph": True}}}
        text, _ = export(own_run(one, **graphs), "nccl-tests")
        config = json.loads(export(own_run(one, **graphs), "nccl-tests-json")[0])["config"]
        on_gpu = int("topology" in header)
        assert (f"nGpus {gpus} " in told(text), told(text)[-1]) == (True, str(on_gpu)), header
        assert (config["ngpus"], config["graph"]) == (gpus, on_gpu)
        assert [device["rank"] for device in config["devices"]] == list(range(0, 4, gpus))


def test_what_another_tool_was_told_is_said_in_every_format() -> None:
    golden = next(name for name, golden in GOLDENS.items() if golden.format == "nccl-tests-json")
    run = run_of(golden_tests(golden))
    (test,) = run.header.imported.tests
    text, _ = export(run, "nccl-tests")
    assert f"{test.sweep['threads']} nGpus {test.sweep['gpus']} " in told(text)
    assert f" warmup iters: {test.sweep['warmup']} iters: {test.sweep['iters']} " in told(text)


def test_wrong_rows_are_written_as_wrong() -> None:
    bad = Measurement(case(), "ring-flags", "cpu", 1, (), Mismatch(0, 1, 0, "1", "2", 7))
    text, _ = export(own_run(bad), "nccl-tests")
    assert rows_of(text)[0].split()[5:9] == ["N/A", "N/A", "N/A", "7"]
    assert "# Out of bounds values : 1 FAILED" in text
    (row,) = reported(parsed(text))
    assert (row.wrong_elements, row.right) == (7, False)


def test_unchecked_rows_have_no_count() -> None:
    run = run_of(golden_tests("osu_mpi_datatypes.txt"))
    rows = rows_of(export(run, "nccl-tests")[0])
    assert all(re.search(r"\d {4}N/A {6}N/A {5}N/A {5}N/A {4}N/A$", row) for row in rows)
    assert len(rows) == 6


def test_several_implementations_must_be_chosen_from() -> None:
    run = own_run(measured(8, 1e-6), measured(8, 2e-6, name="mpi"))
    with pytest.raises(UsageError, match="--impl: ring-flags, mpi"):
        export(run, "nccl-tests")
    with pytest.raises(UsageError, match="choose from: ring-flags, mpi"):
        export(run, "nccl-tests", "nccl")
    assert len(rows_of(export(run, "nccl-tests", "mpi")[0])) == 1
    assert len(export(run, "csv")[0].splitlines()) == 3


def test_what_is_not_written_is_counted() -> None:
    failed = Failed(case(), "ring-flags", "cpu", "hung")
    expected = Prediction(case(), "ring-flags", 1e-6, 1e-6, 2e-6)
    _, left = export(own_run(measured(8, 1e-6), failed, expected), "nccl-tests")
    assert left == ["failed rows have no time", "predictions are not measured"]
    text, left = export(own_run(expected), "csv")
    (test,) = parsed(text)
    assert test.results == (expected,)
    with pytest.raises(UsageError, match="nothing to export"):
        export(own_run(failed), "csv")


def test_numbers_lose_digits_before_they_break_a_column() -> None:
    shown = [shrunk(value, 7) for value in (12.9, 5397.84, 12345.678, 1234567.8, 12345678.9, 1.2e15)]
    assert shown == ["12.90", "5397.84", "12345.7", "1234568", "1.2e+07", "1.2e+15"]
    assert [shrunk(value, 6) for value in (0, 348.109, 12345.6, 1234567.0)] == ["0.00", "348.11", "12346", "1e+06"]


def test_statistics_of_single_operations_are_written_where_there_are_any() -> None:
    text, _ = export(own_run(measured(8, 1e-6, 2e-6, 6e-6)), "nccl-tests-json")
    own = json.loads(text)["results"][0]["out_of_place_per_iter"]
    assert (own["min_us"], own["p50_us"], own["max_us"], own["times_us"]) == (1.0, 2.0, 6.0, [1.0, 2.0, 6.0])


def test_the_tests_of_osu_go_there_and_back_and_nccl_tests_has_none_of_them() -> None:
    for name in (name for name, collective in COLLECTIVES.items() if collective.suite == "osu"):
        sizes = [4, 65536] if COLLECTIVES[name].sized else [4]
        rows = [measured(size, 2e-6, 4e-6, name="mpi", collective=name, ranks=4) for size in sizes]
        text, left = export(own_run(*rows), "osu")
        back = reported(parsed(text))
        assert [(row.case.collective.name, row.case.ranks, row.case.nbytes) for row in back] == [
            (name, 4, size) for size in sizes
        ]
        assert [row.seconds for row in back] == pytest.approx([3e-6] * len(sizes), rel=0.01), name
        assert not any(str(row.note) for row in back), name
        assert not left
    for name, pairs in (("bandwidth", 1), ("bidirectional", 2), ("multipair", 2)):
        row = measured(3000, 3e-6, name="mpi", collective=name, ranks=4)
        figures = [float(figure) for figure in MEASURED[name].figures(row, 3e-6)]
        assert figures == pytest.approx([pairs * 1000.0, pairs / 3e-6][: len(figures)], abs=0.01), name
    pair, other = (measured(8, 1e-6, name="mpi", collective=name) for name in ("pingpong", "sendrecv"))
    text, left = export(own_run(pair, other), "nccl-tests")
    assert "sendrecv_perf" in text
    assert left == ["nccl-tests has no pingpong"]
    with pytest.raises(UsageError, match="nothing to export: nccl-tests has no pingpong; choose --to osu or csv"):
        export(own_run(pair), "nccl-tests")
