"""What other tools wrote is read as they meant it, every variant of every format."""

import json
import re
import time
from pathlib import Path

import pytest

from collbench.errors import CollbenchError, RunFileError, UsageError
from collbench.formats import detect, formats, read_tests
from collbench.formats.imported import Hints, grouped, remarks
from collbench.formats.source import LARGEST, decode, load
from tests.formats.goldens import DATA, GOLDENS, Golden, golden_tests, parsed, reported, run_of

EVERY = pytest.mark.parametrize(("name", "golden"), GOLDENS.items(), ids=list(GOLDENS))


def text_of(name: str) -> str:
    return (DATA / name).read_text()


def test_every_file_and_every_format_has_its_expectation() -> None:
    """So none is forgotten."""
    assert {path.name for path in DATA.iterdir()} == set(GOLDENS)
    assert {golden.format for golden in GOLDENS.values()} == set(formats())


@EVERY
def test_a_format_is_told_from_its_content(name: str, golden: Golden) -> None:
    """Whatever the file is called."""
    assert detect(decode("log", (DATA / name).read_bytes())).name == golden.format


@EVERY
def test_rows_are_read_as_they_are_meant(name: str, golden: Golden) -> None:
    """Times, collective, ranks and library; what no run file holds is counted."""
    tests = golden_tests(name)
    rows = reported(tests)
    assert len(rows) == golden.results
    times = [row.seconds * 1e6 for row in rows[: len(golden.microseconds)]]
    assert times == pytest.approx(golden.microseconds, rel=1e-9)
    assert {row.case.ranks for row in rows} == {golden.ranks}
    assert rows[0].implementation == golden.implementation
    assert tuple(dict.fromkeys(row.case.collective.name for row in rows)) == golden.collectives
    assert sum(int(reason.split()[0]) for test in tests for reason in test.left_out) == golden.left_out
    assert all(test.complete for test in tests) == golden.complete


@EVERY
def test_bandwidths_agree_with_those_that_were_printed(name: str, golden: Golden) -> None:
    """So sizes and ranks mean what the tool means by them."""
    for row in reported(golden_tests(name)):
        printed = row.printed if "busbw" in row.printed else {}
        if row.right and row.case.nbytes > 2**20 and printed and "aggregated" not in str(row.note):
            assert row.busbw / 1e9 == pytest.approx(float(printed["busbw"]), rel=0.01)


@EVERY
def test_an_import_is_a_run_file_again(name: str, golden: Golden) -> None:
    """Every row survives the way through JSON, and the header says what it was."""
    tests = golden_tests(name)
    run = run_of(tests)
    assert [result.seconds for result in run.results] == [row.seconds for row in reported(tests)]  # type: ignore[union-attr]
    assert run.header.topology.ranks == golden.ranks
    assert run.header.imported.complete is golden.complete


def test_log_lines_between_and_inside_rows_are_taken_out() -> None:
    """With -S and -I, NCCL's warnings before, between and in the middle of rows: every row, and what NCCL said."""
    (test,) = golden_tests("nccl_tests_stamped_percentiles_warnings.txt")
    assert [row.case.nbytes for row in reported([test])] == [8, 8, 256, 256, 8192, 8192]
    first, last = reported([test])[0].printed, reported([test])[-1].printed
    assert (first["i_min"], first["timestamp"]) == ("11.20", "2026-07-09 10:00:00")
    assert (last["i_cv%"], last["timestamp"]) == ("11.90", "2026-07-09 10:00:02")
    assert test.machine.variables == (("NCCL_ALGO", "Ring"),)
    assert dict(test.machine.versions)["nccl"] == "2.28.9"
    assert test.started == "2026-07-09T10:00:00"


def test_a_launchers_tags_do_not_matter() -> None:
    """As `mpirun --tag-output` and `srun --label` put before each line."""
    text = text_of("nccl_tests_2_19.txt")
    plain = [row.seconds for row in reported(parsed(text))]
    for tag in ("[1,0]<stdout>:", "0: "):
        tagged = "".join(f"{tag}{line}\n" for line in text.splitlines())
        assert [row.seconds for row in reported(parsed(tagged))] == plain


@pytest.mark.parametrize("change", [lambda raw: raw.replace(b"\n", b"\r\n"), lambda raw: b"\xef\xbb\xbf" + raw])
def test_line_ends_and_marks_of_other_systems_do_not_matter(change: object) -> None:
    """CRLF, and the byte order mark that some editors write."""
    raw = (DATA / "nccl_tests_2_19.txt").read_bytes()
    rows = reported(list(read_tests(decode("log", change(raw)), Hints())))  # type: ignore[operator]
    assert [row.seconds for row in rows] == [row.seconds for row in reported(golden_tests("nccl_tests_2_19.txt"))]


def test_bytes_that_are_no_text_cost_their_line_only() -> None:
    """NUL and broken UTF-8 inside a log."""
    raw = (DATA / "nccl_tests_2_19.txt").read_bytes().replace(b"    12.90 ", b"  \x00\xff 12.90 ", 1)
    (test,) = read_tests(decode("log", raw), Hints())
    assert len(test.results) == 12
    assert test.left_out


def test_rows_below_a_damaged_header_are_named() -> None:
    """Nothing says what their columns are; the other test of the file is read."""
    text = text_of("nccl_tests_several_tests.txt").replace("#       size  ", "#       s!ze  ", 1)
    first, second = parsed(text)
    assert (len(first.results), len(second.results)) == (0, 4)
    assert len(first.left_out) == 4


def test_the_environment_of_a_report_is_not_copied() -> None:
    """It holds tokens; what changes measurements is kept."""
    run = run_of(golden_tests("json_v3_percentiles.json"))
    assert "made-up-secret" not in json.dumps(run.header.to_json())
    assert run.header.environment.variables == {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "NCCL_ALGO": "Ring"}


def test_ranks_are_never_those_of_the_listed_devices() -> None:
    """JSON lists one device for each process, and here one process had eight."""
    (test,) = golden_tests("json_v3_percentiles.json")
    assert test.machine.ranks == 8
    assert test.layout["values"]["config"]["devices"][0]["rank"] == 0


def test_a_report_without_devices_is_read_where_the_ranks_are_given() -> None:
    """Nothing else needs them."""
    name = "json_v3_percentiles.json"
    text = text_of(name).replace('"config"', '"onfig"').replace('"bus_bw"', '"us_bw"')
    (found,) = read_tests(decode(name, text.encode()), Hints(4))
    assert {row.case.ranks for row in reported([found])} == {4}


def test_single_operations_become_samples() -> None:
    """Of -I with -J; the printed mean stays beside them."""
    row = reported(golden_tests("json_v3_percentiles.json"))[0]
    assert row.samples == pytest.approx((13.9e-6, 14.04e-6, 14.2e-6, 14.7e-6))
    assert row.seconds == pytest.approx(14.21e-6)
    assert row.statistic == "mean of 4 operations, mean over ranks"


def test_types_and_operations_that_no_kernel_knows_are_kept() -> None:
    """Eight-bit floats and mulsum."""
    assert {row.case.dtype.name for row in reported(golden_tests("nccl_tests_several_tests.txt"))} == {
        "float",
        "f8e4m3",
    }
    assert {row.case.redop.name for row in reported(golden_tests("nccl_tests_hypercube.txt"))} == {"mulsum"}


def test_wrong_elements_are_told_from_unchecked_ones() -> None:
    """N/A is not zero."""
    rows = reported(golden_tests("nccl_tests_cputime_exponents.txt"))
    assert [row.wrong_elements for row in rows] == [0, None, 1234570, None, None, None]
    assert not any(row.right for row in rows[2:3] + rows[4:])
    assert {row.wrong_elements for row in reported(golden_tests("nccl_tests_2018_error_column.txt"))} == {0, None}


def test_sizes_of_osu_become_those_of_the_whole_array() -> None:
    """Its all-gather counts what each rank sends, its reduce-scatter everything."""
    assert [row.case.nbytes for row in reported(golden_tests("osu_mpi_datatypes.txt"))][:2] == [4, 4096]
    assert [row.case.nbytes for row in reported(golden_tests("osu_mpi_nonblocking.txt"))] == [4, 8]


def test_copies_that_ran_side_by_side_are_noticed() -> None:
    """Each is a world of its own where nccl-tests was built without MPI."""
    text = text_of("nccl_tests_2_19.txt")
    rank = next(line for line in text.splitlines() if "Rank  0" in line)
    tests = parsed(text.replace(rank, f"{rank}\n{rank}"))
    assert any("more than once" in remark for remark in remarks(tests))


def test_ranks_of_a_split_communicator_are_those_of_one_group() -> None:
    """And each row says that there were several at once."""
    text = text_of("nccl_tests_2_19.txt")
    for rank in (2, 3):
        text = text.replace(f"Rank  {rank} Group  0", f"Rank  {rank} Group  1")
    text = re.sub(r"( +\d+\.\d\d)( +\d+\.\d\d)( +0)", r"\1\1\3", text)  # busbw of two ranks is algbw
    rows = reported(parsed(text))
    assert {row.case.ranks for row in rows} == {2}
    assert all("2 groups at once" in str(row.note) for row in rows)


def test_a_table_of_one_place_may_be_the_one_in_place() -> None:
    """As the line above the header says."""
    assert all(row.case.in_place for row in reported(golden_tests("rccl_tests_one_place.txt")))
    text = text_of("rccl_tests_one_place.txt").replace("in-place", "out-of-place")
    assert not any(row.case.in_place for row in reported(parsed(text)))


def test_sizes_tell_the_collective_and_its_ranks() -> None:
    """Where a log has neither name nor ranks: a rank's share is a quarter, and something is added up."""
    lines = text_of("rccl_tests_one_place.txt").splitlines()
    bare = "".join(line + "\n" for line in lines if "Collective test" not in line and "Rank" not in line)
    (test,) = parsed(bare.replace("nThread 1 nGpus 4", "nThread 1 nGpus 1"))
    assert {(row.case.collective.name, row.case.ranks) for row in reported([test])} == {("reducescatter", 4)}
    small = "".join(line for line in bare.splitlines(keepends=True) if "LL128" not in line and "Simple" not in line)
    assert {row.case.ranks for row in reported(parsed(small))} == {4}  # though its bandwidths would allow much
    with pytest.raises(UsageError, match="allgather, alltoall would fit; give --op NAME"):
        parsed(bare.replace("     sum  ", "    none  "))


def test_aggregated_operations_are_labelled() -> None:
    """-m fuses them: 100 of them in half a microsecond each is no latency."""
    assert all(
        "4 operations aggregated" in str(row.note) for row in reported(golden_tests("nccl_tests_cputime_exponents.txt"))
    )


def test_golden_tests_one_machine_share_a_run_and_others_do_not() -> None:
    """By the GPUs, host and versions."""
    assert len(grouped(golden_tests("nccl_tests_several_tests.txt"))) == 1
    assert len(grouped(golden_tests("nccl_tests_several_tests.txt") + golden_tests("nccl_tests_2_19.txt"))) == 3


def test_a_number_of_ranks_that_nobody_tells_is_asked_for() -> None:
    """Rather than guessed."""
    with pytest.raises(UsageError, match="--ranks N"):
        read_tests(load(DATA / "osu_nccl_full.txt"), Hints())
    text = "".join(line + "\n" for line in text_of("nccl_tests_several_tests.txt").splitlines() if " Rank " not in line)
    broadcast = text[text.index("# Collective test starting: broadcast") :]
    with pytest.raises(UsageError, match="--ranks N"):
        parsed(broadcast)
    assert {row.case.ranks for row in reported(parsed(broadcast, 3))} == {3}
    gathered = parsed(text[: text.index("# Collective test starting: broadcast")])
    assert {row.case.ranks for row in reported(gathered)} == {2}


def test_a_collective_that_nobody_tells_is_asked_for() -> None:
    """Two ranks: the bandwidths of an all-reduce are those of others too."""
    text = text_of("nccl_tests_no_ranks_no_name.txt").replace("sum      -1", "none      -1")
    with pytest.raises(UsageError, match="--op NAME"):
        parsed(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "known are: "),
        ("hello\n", "nccl-tests"),
        ("# nccl-tests version 2.19.6\n", "without a row"),
        ('{"nccl_version": 1, "results": [\n{"size": }', ":2: not JSON"),
        ('{"nccl_version": 1, "results": []}', "without results"),
        ('{"nccl_version": ' + "[" * 100_000, "not JSON|nested"),
        ('{"nccl_version": ' + "9" * 10_000 + "}", "long numbers"),
        ("implementation,collective,ranks,nbytes,dtype,redop,root,in_place,seconds\n", "no row"),
        ("# OSU MPI Allreduce Latency Test v7.4\n", "without a row"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, words: str) -> None:
    """In one line, with the file."""
    with pytest.raises(RunFileError, match=words) as error:
        parsed(text)
    assert "log" in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_are_refused(tmp_path: Path) -> None:
    """Missing, a folder, too large: sparse, so that the test costs nothing."""
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(LARGEST + 1)
    for path, words in ((tmp_path / "no", "No such file"), (tmp_path, "directory"), (large, "larger than 256 MiB")):
        with pytest.raises(CollbenchError, match=words):
            load(path)


@pytest.mark.parametrize("word", ['\\"', '"', '{"a": ', "[", "\\"])
def test_hostile_json_is_refused_quickly(word: str) -> None:
    """Half a million quotes that are never closed, or as many brackets."""
    start = time.process_time()
    with pytest.raises(CollbenchError):
        parsed('{"nccl_version": 1, "results": [' + word * 500_001)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("word", ["1e999", "-1e999", "9" * 5000, "0x10", "1_000", "nan", "-5", "1e-999"])
def test_numbers_that_are_no_times_are_none(word: str) -> None:
    """The row stays, without a time, or is named; nothing overflows."""
    tests = parsed(text_of("nccl_tests_2_19.txt").replace("   12.90 ", f"   {word} ", 1))
    rows = [row for row in reported(tests) if row.case.nbytes == 8 and not row.case.in_place]
    assert not any(row.right for row in rows)
    assert rows or tests[0].left_out
