"""Operations that NCCL Inspector saw, joined over the files of the ranks; copies between GPUs against their link."""

import bz2
import gzip
import io
import json
import lzma
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collbench.commands.check.library import check, diagnose
from collbench.commands.formats import source
from collbench.commands.formats.imported import Hints, ImportedTest
from collbench.commands.formats.importing import ImportRequest, import_, read_foreign, read_tests, remarks
from collbench.commands.formats.importing import joined as joined_files
from collbench.commands.formats.source import decode
from collbench.errors import Notice, RunFileError
from tests.commands.formats.goldens import DATA, parsed, reported, run_of
from tools.fuzz import outcome

PACKED = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
ONE_RANK = (DATA / "inspector_v4_0.log").read_text()
MARKED = (DATA / "inspector_v4_4.log").read_text()
COPIES = (DATA / "nvbandwidth_v0_8.json").read_text()


def record(
    body: dict[str, Any], rank: int = 0, ranks: int = 2, nodes: int = 1, host: str = "a", id_: str = "0x1"
) -> str:
    kind = "p2p_perf" if "p2p" in body else "coll_perf"
    header = {"id": id_, "rank": rank, "n_ranks": ranks, "nnodes": nodes}
    metadata = {"inspector_output_format_version": "v4.2", "dump_timestamp_us": 1752867229276385, "hostname": host}
    return json.dumps({"header": header, "metadata": metadata, kind: body}) + "\n"


def gathered(sequence: int, microseconds: float, nbytes: int = 1 << 20) -> dict[str, Any]:
    busbw = nbytes / microseconds / 1e3
    return {
        "coll": "AllGather",
        "coll_sn": sequence,
        "coll_msg_size_bytes": nbytes,
        "coll_exec_time_us": microseconds,
        "coll_timing_source": "kernel_gpu",
        "coll_algobw_gbs": 2 * busbw,
        "coll_busbw_gbs": busbw,
    }


def sent(name: str, peer: int, microseconds: int = 100) -> dict[str, Any]:
    return {
        "p2p": name,
        "p2p_sn": 1,
        "p2p_peer": peer,
        "p2p_msg_size_bytes": 1 << 20,
        "p2p_exec_time_us": microseconds,
        "p2p_timing_source": "kernel_gpu",
    }


def joined(*texts: str) -> list[ImportedTest]:
    files = [decode(f"rank{at}.log", text.encode()) for at, text in enumerate(texts)]
    return [test for file in joined_files(files) for test in read_tests(file, Hints())]


def said(tests: list[ImportedTest]) -> str:
    return "\n".join(remarks(tests))


def test_a_sample_is_the_slowest_rank_of_an_operation_and_only_operations_that_all_recorded_count() -> None:
    first = record(gathered(1, 50), 0) + record(gathered(2, 64), 0) + record(gathered(3, 99), 0)
    second = record(gathered(2, 60), 1) + record(gathered(1, 70), 1)
    tests = joined(first, second)
    (row,) = reported(tests)
    assert row.samples == pytest.approx((70e-6, 64e-6))
    assert row.case.nbytes == 2 << 20, "the plugin counts a rank's share"
    assert "slowest of 2 ranks" in str(row.note)
    assert tests[0].left_out == ("1 row: operations that fewer ranks recorded than others of their size",)
    assert "not of a benchmark" in said(tests)
    (alone,) = reported(joined(first, first))  # a file that is given twice counts once
    assert alone.samples == pytest.approx((50e-6, 64e-6, 99e-6))
    assert "one rank only" in str(alone.note)


def test_operations_of_other_communicators_sizes_and_names_are_not_one() -> None:
    texts = record(gathered(1, 50), 0), record(gathered(1, 70), 1, id_="0x2") + record(gathered(1, 90, 1 << 21), 1)
    small, large = reported(joined(*texts))
    assert small.samples == pytest.approx((50e-6, 70e-6))
    assert large.samples == pytest.approx((90e-6,))


def test_a_send_is_of_two_ranks_on_a_node_or_on_two_as_hosts_tell() -> None:
    lines = [
        record(sent("Send", 1), 0, 4, 2, "a"),
        record(sent("Recv", 0), 1, 4, 2, "a"),
        record(sent("Send", 3, 300), 1, 4, 2, "a"),
        record(sent("Recv", 1, 310), 3, 4, 2, "b"),
    ]
    tests = joined(*lines)
    assert [(test.machine.ranks, test.machine.nodes) for test in tests] == [(2, 1), (2, 2)]
    assert [row.samples for row in reported(tests)] == [pytest.approx((1e-4, 1e-4)), pytest.approx((3e-4, 3.1e-4))]
    (alone,) = joined(lines[2] + lines[3] + record(sent("Send", 2), 0, 4, 2, "a"))
    assert alone.machine.nodes == 2
    assert "whether its two ranks share a node" in said([alone])
    (apart,) = joined(record(sent("Send", 1), 0, 2, 2))
    assert apart.machine.nodes == 2, "each node has one rank"


def test_ranks_are_compared_with_the_nodes_that_the_communicator_spans() -> None:
    (test,) = joined(record(sent("Send", 1), 0, 2, 2))
    run = run_of([test])
    for nodes, spread in ((None, 2), (1, 1)):
        (curve,) = diagnose(run, "dgx-h100", nodes=nodes).curves
        assert curve.against.startswith(f"DGX H100, {spread} node" if spread > 1 else "DGX H100, 2 GPUs"), nodes
    result = check(run=run, on="dgx-h100")
    assert result
    assert result.nodes == 2


def test_a_line_without_a_communicator_has_that_of_the_marker_above_and_of_no_other() -> None:
    lines = MARKED.splitlines(keepends=True)
    markers = [at for at, line in enumerate(lines) if "dump_stats" in line]
    assert markers == [0, 7]
    torn = "".join([*lines[:3], *lines[4:7], lines[7][:99] + "\n", *lines[8:]])  # and one of the first marker's is lost
    (gather,) = (row for row in reported(parsed(torn)) if row.case.collective.name == "allgather")
    assert gather.samples == pytest.approx((31e-6, 33e-6))
    assert "its communicator is unknown" in said(parsed(torn))
    assert "12 operations that the plugin dropped" in said(parsed(MARKED))


def test_a_newer_version_is_read_by_the_members_that_are_known() -> None:
    newer = MARKED.replace('"v4.4"', '"v5.1"').replace('"n_ranks"', '"planes":[1],"n_ranks"')
    newer = newer.replace('"coll_sn"', '"coll_seen":{"by":3},"coll_sn"')
    tests = parsed(newer + '{"ce_perf":{"ce":"AllGather"}}\n')
    assert {test.version for test in tests} == {"v5.1"}
    assert [row.samples for row in reported(tests)] == [row.samples for row in reported(parsed(MARKED))]


def test_what_has_no_time_or_contradicts_itself_is_left_out_and_counted() -> None:
    good = gathered(1, 50)
    for changed, why in (
        ({"coll_exec_time_us": 0}, "not timed"),
        ({"coll_exec_time_us": 1e300}, "not timed"),
        ({"coll_timing_source": "collective_cpu"}, "on the CPU"),
        ({"coll_busbw_gbs": 100.0}, "contradict"),
        ({"coll_msg_size_bytes": 2**80}, "incomplete record"),
        ({"coll_sn": "1"}, "incomplete record"),
        ({"coll": ["AllGather"]}, "no collective"),
        ({"coll": "AlltoAll"}, "no collective"),
    ):
        tests = joined(record(good) + record({**good, **changed}) + record({**good, **changed}, 1))
        assert len(reported(tests)) == 1, changed
        (reason,) = tests[0].left_out
        assert reason.startswith("2 rows: "), changed
        assert why in reason, changed
    for impossible in ({"ranks": 0}, {"ranks": 2**40}, {"rank": -1}):
        assert len(joined(record(good), record(good, **impossible))[0].left_out) == 1, impossible  # type: ignore[arg-type]
    with pytest.raises(RunFileError, match=r"^rank0.log: no operation with a time; give one .*1 row: it is not timed$"):
        joined(record({**good, "coll_exec_time_us": 0}))


def test_a_folder_is_read_as_one_program_compressed_files_too(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "a-pid1.log").write_text("".join(record(gathered(number, 50), 0) for number in (1, 2, 3)))
    (tmp_path / "notes.md").write_text("of no format")
    for number, (ending, pack) in enumerate(PACKED.items(), 1):
        packed = pack(record(gathered(number, 60 + 10 * number), 1).encode())
        (tmp_path / "below" / f"{number}.log.{ending}").write_bytes(packed)
    with pytest.warns(Notice, match="real program"), pytest.warns(Notice, match="not read: notes.md"):
        (run,) = import_(tmp_path)
    assert run.results[0].samples == pytest.approx((70e-6, 80e-6, 90e-6))  # type: ignore[union-attr]
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunFileError, match=r"no \*.log"):
        read_foreign(ImportRequest([tmp_path / "empty"]))


def test_what_cannot_be_decompressed_or_is_an_archive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for pack in PACKED.values():
        packed = pack(record(gathered(1, 70), 1).encode())
        for broken in (packed[:-9], packed[:30], packed[:12] + b"\xff\xff" + packed[14:]):
            with pytest.raises(RunFileError, match="cannot be decompressed"):
                decode("x", broken)
        monkeypatch.setitem(source.BOUNDS, "bytes", 100)
        with pytest.raises(RunFileError, match=r"exceeds the limit of 100 bytes|Memory usage limit"):
            decode("x", packed)
        monkeypatch.undo()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as file:
        file.addfile(tarfile.TarInfo("node1.log"))
    with pytest.raises(RunFileError, match=r"is an archive.*tar xf"):
        decode("x.tar.gz", archive.getvalue())


def test_files_of_other_formats_are_read_beside() -> None:
    texts = ((DATA / "nccl_tests_2_19.txt").read_text(), ONE_RANK, COPIES)
    together, single = joined(*texts), [test for text in texts for test in parsed(text)]
    assert [row.seconds for row in reported(together)] == [row.seconds for row in reported(single)]
    assert {test.format for test in together} == {"nccl-tests", "nccl-inspector", "nvbandwidth"}


def test_a_pair_far_below_its_link_is_slow_and_others_are_as_expected() -> None:
    run = run_of(parsed(COPIES))
    diagnosed = diagnose(run, "dgx-h100")
    assert [curve.word.value for curve in diagnosed.curves].count("OK") == 3
    (slow,) = (curve for curve in diagnosed.curves if curve.word.value == "SLOW")
    assert slow.implementation == "memcpy-write-ce"
    assert "GPU 1 and GPU 3" in slow.remark
    result = check(run=run, on="dgx-h100")
    assert result
    assert result.word.value == "SLOW"
    assert diagnose(run, "dgx-a100").curves[0].remark.endswith("and DGX A100 has A100 SXM4"), "of another kind"


def test_the_total_of_both_directions_counts_and_of_old_versions_one_direction() -> None:
    def seconds(text: str) -> float:
        return next(row.seconds for row in reported(parsed(text)) if row.case.collective.name == "bidirectional")

    assert seconds(COPIES) == pytest.approx(2**30 / 784.5e9)
    assert seconds(COPIES.replace("Total bandwidth", "bandwidth")) == pytest.approx(2**29 / 784.5e9)


def test_warnings_round_the_json_and_several_objects_do_not_matter_and_a_torn_one_is_refused() -> None:
    times = [row.seconds for row in reported(parsed(COPIES))]
    noisy = "WARNING: a lock {\n" + COPIES + "WARNING: }}\n"
    assert [row.seconds for row in reported(parsed(noisy))] == times
    assert [row.seconds for row in reported(parsed(COPIES + COPIES))] == times * 2
    with pytest.raises(RunFileError, match=r"^log: not JSON: .*line"):
        parsed(COPIES[: len(COPIES) // 2])


@pytest.mark.full
def test_whatever_stands_in_a_member_ends_in_results_or_in_an_error_of_ours() -> None:
    words = ("-1", "1e999", "null", "true", '"8"', "[]", "{}", "9" * 25, "9" * 5000, "2.5", '"\\u202e"')
    for name, text in (("inspector", MARKED), ("nvbandwidth", COPIES)):
        for member in sorted(set(json_members(text))):
            for word in words:
                begin = text.index(member) + len(member)
                end = min(at for at in (text.find(sign, begin) for sign in (",", "\n", "}")) if at > 0)
                assert outcome(name, (text[:begin] + word + text[end:]).encode(), None) in (
                    "results",
                    "nothing kept",
                    "RunFileError",
                )


def json_members(text: str) -> Iterator[str]:
    yield from (match[0] for match in re.finditer(r'"[\w ]+"\s*:\s*', text))
