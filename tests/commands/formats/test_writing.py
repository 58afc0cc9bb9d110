"""What is written reads back as it was."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench.collectives import COLLECTIVES
from collbench.commands.formats.importing import select, writers
from collbench.commands.formats.nccl_tests_write import shrunk, version_code
from collbench.errors import UsageError
from collbench.results import Result
from collbench.results.collectives import Failed, Measurement, Prediction, Reported
from collbench.results.facts import NO_NOTE, Mismatch
from collbench.runfile.schema import Header
from collbench.runfile.store import Run
from tests.commands.formats.goldens import DATA, GOLDENS, golden_tests, parsed, reported, run_of
from tests.conftest import case

LOG = (DATA / "nccl_tests_2_19.txt").read_text()


def export(run: Run, name: str) -> tuple[str, list[str]]:
    selection = select(run.header, run.results, run.path)
    return writers()[name](selection), list(selection.left_out)


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
    return [line for line in text.splitlines() if re.match(r"\s*\d+\s+\d+\s+[a-z]", line)]


def test_an_export_has_as_many_hosts_with_as_many_ranks_as_the_log_had() -> None:
    for hosts in ("0000", "0011", "0001", "0123"):
        named = LOG
        for host in hosts:
            named = named.replace("node07", f"n{host}", 1)
        before = run_of(parsed(named))
        text, _ = export(before, "nccl-tests")
        after, facts = run_of(parsed(text)).header.topology, before.header.topology
        assert (after.nodes, after.uneven) == (facts.nodes, facts.uneven)
        assert (facts.nodes, facts.uneven) == (len(set(hosts)), (3, 1) if hosts == "0001" else ())
    for unlisted in ("Rank  [0123]", "Rank  [123]"):
        before = run_of(parsed(re.sub(rf"#  {unlisted}.*\n", "", LOG)))
        after = run_of(parsed(export(before, "nccl-tests")[0])).header.topology
        assert (after.nodes, after.listed) == (0, before.header.topology.listed), unlisted


def test_rows_of_nccl_tests_are_read_again_as_they_were_whatever_the_columns_are() -> None:
    for name, golden in GOLDENS.items():
        if golden.format != "nccl-tests":
            continue
        text, left = export(run_of(golden_tests(name)), golden.format)
        before, after = reported(golden_tests(name)), reported(parsed(text))
        assert [(row.case, row.figure) for row in after] == [(row.case, row.figure) for row in before], name
        times = [row.seconds for row in before]
        assert [row.seconds for row in after] == pytest.approx(times, abs=0.05e-6), name
        assert not left
    (first, *_) = rows_of(export(run_of(golden_tests("nccl_tests_2_19.txt")), "nccl-tests")[0])
    assert first.split() == next(line for line in LOG.splitlines() if line.startswith("           8 ")).split()


def test_json_is_read_again_as_it_was() -> None:
    for name in (name for name, golden in GOLDENS.items() if golden.format == "nccl-tests-json"):
        before = run_of(golden_tests(name))
        text, left = export(before, "nccl-tests-json")
        assert not left
        after = parsed(text)
        again = run_of(after)
        bare = {"printed": {}, "samples": (), "statistic": "", "note": NO_NOTE}
        assert [replace(row, **bare) for row in reported(after)] == [
            replace(row, **bare) for row in before.results if isinstance(row, Reported)
        ], name
        assert again.header.environment.versions == before.header.environment.versions
        assert again.header.imported.tests[0].sweep == before.header.imported.tests[0].sweep, name
        assert "secret" not in text
    versions = {"2.30.7": 23007, "2.9.6": 20906, "2.8.4": 2804, "2.7": 0, "": 0}
    assert {version: version_code(version) for version in versions} == versions


def test_bandwidths_are_written_where_messages_have_a_size() -> None:
    for name, collective in COLLECTIVES.items():
        run = own_run(measured(1024, 4.25e-6, 4.75e-6, collective=name))
        (tidy,) = csv.DictReader(io.StringIO(export(run, "csv")[0]))
        (record,) = run.rows()
        for rate in ("algbw", "busbw"):
            assert bool(tidy[rate]) == collective.sized, name
            assert (record[rate] is not None) == collective.sized, name


def test_what_is_written_reads_back_to_the_same_values_as_far_as_a_format_can_hold_them() -> None:
    for name in writers():
        held = [row for row in OWN if name != "nccl-tests-json" or row.case.collective.name == "allreduce"]
        text, left = export(own_run(*(held if name == "nccl-tests-json" else OWN)), name)
        read = {row.case: row for row in reported(parsed(text))}
        assert set(read) == {row.case for row in held}, name
        for row in held:
            again = read[row.case]
            assert (again.implementation, again.platform) == (row.implementation, row.platform), name
            expected = row.typical if name == "csv" else sum(row.seconds) / len(row.seconds)
            assert again.seconds == pytest.approx(expected, rel=0, abs=0.0051e-6), name
            assert again.wrong_elements in (0, None)
        assert not left


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
        "requested": {"first": 7, "last": 100, "factor": 4.0},
        "sampling": {"warmup": 5, "graph": True},
    }
    rows = measured(4, 1e-6, 2e-6), measured(28, 1e-6, 2e-6)
    text, _ = export(own_run(*rows, sweep=sweep), "nccl-tests")
    assert told(text) == (
        "1 nGpus 2 minBytes 7 maxBytes 100 step: 4(factor) "
        "warmup iters: 5 iters: 2 agg iters: 1 validation: 1 graph: 0 unalign: 0"  # a CPU has no graph
    )
    sweep["requested"] = {"first": 4, "last": 100, "step": 24}
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
        assert (f"nGpus {gpus} " in told(text), told(text).split(" graph: ")[1][0]) == (True, str(on_gpu)), header
        assert (config["ngpus"], config["graph"]) == (gpus, on_gpu)
        assert [device["rank"] for device in config["devices"]] == list(range(0, 4, gpus))


def test_wrong_rows_are_written_as_wrong() -> None:
    bad = Measurement(case(), "ring-flags", "cpu", 1, (), mismatch=Mismatch(0, 1, 0, "1", "2", 7))
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


def test_each_implementation_has_a_table_of_its_own_and_the_json_that_of_the_first() -> None:
    run = own_run(measured(8, 1e-6), measured(8, 2e-6, name="mpi"))
    text, left = export(run, "nccl-tests")
    assert [row.implementation for row in reported(parsed(text))] == ["ring-flags", "mpi"]
    assert not left
    text, left = export(run, "nccl-tests-json")
    assert [row.implementation for row in reported(parsed(text))] == ["ring-flags"]
    assert left == ["nccl-tests-json holds only one test; nccl-tests holds all"]
    assert len(export(run, "csv")[0].splitlines()) == 3


def test_what_is_not_written_is_counted() -> None:
    failed = Failed(case(), "ring-flags", "cpu", "hung")
    expected = Prediction(case(), "nccl", 1e-6, 1e-6, 2e-6, "ring", "ll")
    pair = measured(8, 1e-6, name="mpi", collective="pingpong")
    _, left = export(own_run(measured(8, 1e-6), failed, expected, pair), "nccl-tests")
    assert left == ["failed rows have no time", "predictions are not measured", "nccl-tests has no pingpong"]
    text, left = export(own_run(expected), "csv")
    (test,) = parsed(text)
    assert test.results == (expected,)
    with pytest.raises(UsageError, match="nothing to export"):
        export(own_run(failed), "csv")
    with pytest.raises(UsageError, match="nothing to export: predictions are not measured; choose --to csv"):
        export(own_run(expected), "nccl-tests")


def test_numbers_lose_digits_before_they_break_a_column() -> None:
    shown = [shrunk(value, 7) for value in (12.9, 5397.84, 12345.678, 1234567.8, 12345678.9, 1.2e15)]
    assert shown == ["12.90", "5397.84", "12345.7", "1234568", "1.2e+07", "1.2e+15"]
    assert [shrunk(value, 6) for value in (0, 348.109, 12345.6, 1234567.0)] == ["0.00", "348.11", "12346", "1e+06"]


def test_means_are_called_means_and_what_is_none_is_not_written_into_a_table_of_means() -> None:
    for name in ("nccl_tests_2_19.txt", "osu_nccl_full.txt", "rccl_mpi.csv"):
        assert reported(golden_tests(name))[0].figure == "mean"
    assert reported(golden_tests("json_v3_percentiles.json"))[0].figure == "median"
    assert "slowest rank" in reported(golden_tests("nccl_tests_several_commands.txt"))[0].statistic
    assert reported(golden_tests("nccl_tests_2_19.txt"))[0].check == "reported mean"
    row = reported(golden_tests("tidy.csv"))[0]
    assert row.figure != "mean"
    for name in ("nccl-tests", "nccl-tests-json"):
        with pytest.raises(UsageError, match="nccl-tests has only means; choose --to csv"):
            export(run_of(golden_tests("tidy.csv")), name)


@pytest.mark.parametrize("name", writers())
def test_every_format_says_by_how_much_buffers_start_late(name: str) -> None:
    rows = [Measurement(case(unalign=unalign), "nccl", "gpu", 1, (1e-6,)) for unalign in (0, 3)]
    texts = [export(own_run(row, topology=GPUS), name)[0] for row in rows]
    assert [reported(parsed(text))[0].case.unalign for text in texts] == [0, 3]
