"""What other tools wrote is read as they meant it, every variant of every format; hostile files are refused."""

import json
import os
import re

import pytest
from hypothesis import HealthCheck, event, given, settings

from collbench.commands.formats.imported import Hints
from collbench.commands.formats.importing import detect, formats, grouped, listed, read_tests, remarks, writers
from collbench.commands.formats.source import decode
from collbench.errors import CollbenchError, RunFileError, UsageError
from tests.commands.formats.goldens import DATA, GOLDENS, counted, golden_tests, parsed, reported, run_of
from tools.fuzz import broken, outcome

LOG = (DATA / "nccl_tests_2_19.txt").read_text()
FUZZ = os.environ.get("FUZZ")  # the number of broken files, of `make fuzz`


def text_of(name: str) -> str:
    return (DATA / name).read_text()


def test_every_format_is_told_from_its_content_and_read_as_it_is_meant() -> None:
    assert {path.name for path in DATA.iterdir()} == set(GOLDENS)
    assert {golden.format for golden in GOLDENS.values()} == set(formats())
    _, *rows = listed()
    assert [(name, bool(writes)) for name, writes, _ in rows] == [(name, name in writers()) for name in formats()]
    assert all(about for *_, about in rows), "what the module of a format begins with"
    for name, golden in GOLDENS.items():
        assert detect(decode("log", (DATA / name).read_bytes())).name == golden.format, name
        tests = golden_tests(name)
        rows = reported(tests)
        assert len(rows) == golden.results, name
        times = [row.seconds * 1e6 for row in rows[: len(golden.microseconds)]]
        assert times == pytest.approx(golden.microseconds, rel=1e-9), name
        assert {row.case.ranks for row in rows} == {golden.ranks}, name
        assert rows[0].implementation == golden.implementation, name
        assert list(dict.fromkeys(row.case.collective.name for row in rows)) == golden.collectives.split(), name
        assert counted(tests) == golden.left_out, name
        assert all(test.complete for test in tests) == golden.complete, name
        for row in rows:  # so sizes and ranks mean what the tool means by them
            plain = "busbw" in row.printed and "aggregated" not in str(row.note)
            if row.right and row.case.nbytes > 2**20 and plain:
                assert row.busbw / 1e9 == pytest.approx(float(row.printed["busbw"]), rel=0.01), name
        run = run_of(tests)
        assert [result.seconds for result in run.results] == [row.seconds for row in rows], name  # type: ignore[union-attr]
        assert run.header.topology.ranks == golden.ranks, name
        assert run.header.imported.complete is golden.complete, name


@settings(
    max_examples=int(FUZZ or 100),
    deadline=2000 if FUZZ else None,  # milliseconds for one file
    derandomize=not FUZZ,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(broken())
def test_a_broken_file_ends_in_results_or_in_an_error_of_ours(changed: tuple[str, bytes, int | None]) -> None:
    event(outcome(*changed))


def test_log_lines_between_rows_are_taken_out_and_rows_that_they_tear_are_told() -> None:
    (test,) = golden_tests("nccl_tests_stamped_percentiles_warnings.txt")
    assert [row.case.nbytes for row in reported([test])] == [256, 256]
    (first, _) = reported([test])
    assert (first.printed["i_min"], first.printed["timestamp"]) == ("11.30", "2026-07-09 10:00:01")
    for line in (19, 25):
        assert any(f"line {line} is an incomplete row" in reason for reason in test.left_out)
    assert test.machine.variables == (("NCCL_ALGO", "Ring"),)
    assert dict(test.machine.versions)["nccl"] == "2.28.9"
    assert test.started == "2026-07-09T10:00:01"
    at = LOG.index("         128")
    for logged in ("n:1:1 [0] NCCL INFO x\n", "[2026-07-09 10:00:00] n:1:1 [0] NCCL WARN x\n"):
        tests = parsed(f"{LOG[:at]}{logged}{LOG[at:]}"), parsed(f"{LOG[: at - 1]} {logged}{LOG[at:]}")
        for (one,) in tests:
            assert (len(one.results), one.left_out) == (14, ()), logged


def test_rows_below_a_damaged_header_are_named() -> None:
    text = text_of("nccl_tests_several_tests.txt").replace("#       size  ", "#       s!ze  ", 1)
    first, second = parsed(text)
    assert (len(first.results), len(second.results)) == (0, 4)
    assert len(first.left_out) == 4


def test_a_report_in_json_keeps_no_secrets_and_its_samples_and_ranks() -> None:
    name = "json_v3_percentiles.json"
    tests = golden_tests(name)
    header = run_of(tests).header
    assert "made-up-secret" not in json.dumps(header.to_json())
    assert header.environment.variables == {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "NCCL_ALGO": "Ring"}
    assert tests[0].machine.ranks == 8, "it lists one device for each process, and one process had eight"
    row = reported(tests)[0]
    assert row.samples == pytest.approx((13.9e-6, 14.04e-6, 14.2e-6, 14.7e-6))
    assert row.seconds == pytest.approx(14.21e-6)
    assert row.statistic == "mean of 4 operations, mean over ranks"
    bare = text_of(name).replace('"config"', '"onfig"').replace('"bus_bw"', '"us_bw"')
    (found,) = read_tests(decode(name, bare.encode()), Hints(4))
    assert {row.case.ranks for row in reported([found])} == {4}


def test_types_operations_and_wrong_elements_are_kept_as_they_are() -> None:
    several = reported(golden_tests("nccl_tests_several_tests.txt"))
    assert {row.case.dtype.name for row in several} == {"float", "f8e4m3"}
    assert {row.case.redop.name for row in reported(golden_tests("nccl_tests_hypercube.txt"))} == {"mulsum"}
    rows = reported(golden_tests("nccl_tests_cputime_exponents.txt"))
    assert [row.wrong_elements for row in rows] == [0, None, 1234570, None], "N/A is not zero"
    assert not rows[2].right
    assert all("4 operations aggregated" in str(row.note) for row in rows)
    assert {row.wrong_elements for row in reported(golden_tests("nccl_tests_2018_error_column.txt"))} == {0, None}
    milliseconds = golden_tests("nccl_tests_milliseconds.txt")
    assert {row.case.dtype.name for row in reported(milliseconds)} == {"float", "int8"}
    assert "older" not in "".join(remarks(milliseconds))
    flawed = reported(golden_tests("rccl_tests_asterisk.txt"))
    assert [row.right for row in flawed] == [True, True, False, True, True, True]
    assert "largest error 6e-02" in str(flawed[2].note)


def test_pairs_message_rates_and_barriers_of_osu_are_what_the_user_says_or_not_quite_it() -> None:
    pair = "# OSU MPI Latency Test v7.4\n# Size       Avg Latency(us)\n8    1.50\n"
    for collective, name, half in (("", "sendrecv", True), ("pingpong", "pingpong", False)):
        (row,) = reported(parsed(pair, collective=collective))
        assert (row.case.collective.name, row.seconds) == (name, pytest.approx(1.5e-6))
        assert ("half a round trip" in str(row.note)) == half, name
    rates = """# OSU MPI Multiple Bandwidth / Message Rate Test v5.6.2
# [ pairs: 8 ] [ window size: 64 ]
# Size                  MB/s        Messages/s
1                       8.71        8710288.67
65536               12328.76         188121.99
"""
    first, last = reported(parsed(rates, ranks=64))  # of which 48 are in no pair
    assert (first.case.collective.name, first.case.ranks, first.case.nbytes) == ("multipair", 16, 1)
    assert first.seconds == pytest.approx(8 / 8710288.67, rel=1e-3)
    assert last.seconds == pytest.approx(8 / 188121.99, rel=1e-3)
    assert "in flight" not in str(first.note)
    assert "16 messages in flight" in str(reported(parsed(rates.replace("size: 64", "size: 16")))[0].note)
    (row,) = reported(parsed("# OSU MPI Barrier Latency Test v7.3\n# Avg Latency(us)\n     1.41\n", 4))
    assert (row.case.collective.name, row.case.ranks, row.seconds) == ("barrier", 4, pytest.approx(1.41e-6))


def test_groups_of_a_split_communicator_are_noticed() -> None:
    text = LOG
    for number in (2, 3):
        text = text.replace(f"Rank  {number} Group  0", f"Rank  {number} Group  1")
    text = re.sub(r"( +\d+\.\d\d)( +\d+\.\d\d)( +0)", r"\1\1\3", text)  # busbw of two ranks is algbw
    rows = reported(parsed(text))
    assert {row.case.ranks for row in rows} == {2}
    assert all("2 groups at once" in str(row.note) for row in rows)
    several, other = golden_tests("nccl_tests_several_tests.txt"), golden_tests("nccl_tests_2_19.txt")
    assert (len(grouped(several)), len(grouped(several + other))) == (1, 2)


def test_a_table_of_one_place_says_which_and_its_sizes_tell_collective_and_ranks() -> None:
    text = text_of("rccl_tests_one_place.txt")
    assert all(row.case.in_place for row in reported(parsed(text)))
    assert not any(row.case.in_place for row in reported(parsed(text.replace("in-place", "out-of-place"))))
    for word in ("1", "1.0", "True"):  # of pandas, which knows no whole number beside an empty cell
        assert [
            row.case.in_place for row in reported(parsed(text_of("tidy.csv").replace("sum,0,1,", f"sum,0,{word},")))
        ][1]
    lines = [line for line in text.splitlines(keepends=True) if "Collective test" not in line and "Rank" not in line]
    bare = "".join(lines)
    (test,) = parsed(bare.replace("nThread 1 nGpus 4", "nThread 1 nGpus 1"))
    assert {(row.case.collective.name, row.case.ranks) for row in reported([test])} == {("reducescatter", 4)}
    small = "".join(line for line in lines if "LL128" not in line and "Simple" not in line)
    assert {row.case.ranks for row in reported(parsed(small))} == {4}, "though its bandwidths would allow much"
    with pytest.raises(UsageError, match="allgather, alltoall would fit; give --op NAME"):
        parsed(bare.replace("     sum  ", "    none  "))


def test_what_cannot_be_read_is_named_in_one_line_with_the_file() -> None:
    for text, words in (
        ("", "known formats: "),
        ("hello\n", "nccl-tests"),
        ("# nccl-tests version 2.19.6\n", "without a row of results"),
        (LOG[: LOG.index("           8")], "without a row of results"),
        ('{"nccl_version": 1, "results": [\n{"size": }', ":2: not JSON"),
        ('{"nccl_version": 1, "results": []}', "without results"),
        ('{"nccl_version": ' + "[" * 100_000, "not JSON|nested"),
        ('{"nccl_version": ' + "9" * 10_000 + "}", "long numbers"),
        ("implementation,collective,ranks,nbytes,dtype,redop,root,in_place,seconds\n", "no row"),
        ("# OSU MPI Allreduce Latency Test v7.4\n", "without a row"),
    ):
        with pytest.raises(RunFileError, match=words) as error:
            parsed(text)
        assert "log" in str(error.value)
        assert "\n" not in str(error.value), words


@pytest.mark.timeout(60)
def test_hostile_json_is_refused_without_a_hang() -> None:
    for word in ('\\"', '"', '{"a": ', "[", "\\"):
        with pytest.raises(CollbenchError):
            parsed('{"nccl_version": 1, "results": [' + word * 500_001)
