"""The rows that a user reads."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from collbench.algorithms import implementations
from collbench.analysis.crossover import ONE_PROCESS
from collbench.cli.results_table import (
    ESTIMATE,
    EXTRAS,
    RAN_LEGEND,
    SHARED,
    extra_legends,
    legend_lines,
    row,
    timed_table,
)
from collbench.cli.sweeping import findings
from collbench.commands.sweep.ab import paired_rows
from collbench.results import Failed, Mismatch, Note, Prediction, Skipped
from collbench.results.facts import Sharing
from tests.conftest import case, measurement

SHARED_NOTE = Note(shared=Sharing(2, 1), picked="two-shot")


def test_a_row_says_what_was_measured() -> None:
    library = measurement(seconds=(4e-6,) * 7, nbytes=4096)
    line = row(measurement("ring-flags", (2e-6,) * 7, nbytes=4096), library)
    below(line, timed_table("mpi").heading(), size="KiB", time="2 us", vs_mpi="2.00x")
    assert line.split() == ["4", "KiB", "ring-flags", "2", "us", "0.0%", "2.048", "2.048", "2.00x", "ok"]


def test_ranks_that_share_a_gpu_have_no_bus_bandwidth_and_one_line_says_why() -> None:
    alone = measurement(seconds=(2e-6,) * 7, nbytes=4096)
    shared = replace(alone, note=SHARED_NOTE)
    names, line = timed_table("mpi", bus=False).heading(), row(shared, alone)
    assert line.split() == ["4", "KiB", "mpi", "2", "us", "0.0%", "2.048", "1.00x", "ok,", "picked", "two-shot"]
    assert "busbw" not in names
    below(line, names, algbw="2.048", vs_mpi="1.00x")
    pair = paired_rows((shared, shared), timed_table(bus=False))
    assert all(line.split()[-5:] == ["0.0%", "2.048", "ok,", "picked", "two-shot"] for line in pair)
    why = SHARED.format(sharing="2 ranks share 1 GPU")
    assert legend_lines([alone, shared, shared]) == [why]
    assert legend_lines([alone, Failed(case(), "mpi", "cpu", "a rank died")]) == []
    assert legend_lines([replace(shared, estimate=1e-6)]) == [ESTIMATE, why]


def test_a_limit_of_nccl_stands_in_its_row_unless_it_comes_of_sharing_and_buffers_below_the_table() -> None:
    limited = Note.of("NCCL_MAX_CTAS=8", "one process")
    assert row(replace(measurement("nccl"), note=limited), None).endswith("ok, NCCL_MAX_CTAS=8; one process")
    assert row(replace(measurement("nccl"), note=limited | SHARED_NOTE), None).endswith(
        "ok, picked two-shot; one process"
    )
    buffers = {"nccl": "cudaMalloc", **dict.fromkeys(("nccl@registered", "nccl@few-ctas"), "ncclMemAlloc"), "mpi": ""}
    results = [replace(measurement(name), note=Note(buffers=text)) for name, text in buffers.items() for _ in range(2)]
    assert legend_lines(results) == ["buffers: cudaMalloc (nccl); ncclMemAlloc (nccl@registered, nccl@few-ctas)"]
    assert "(nccl)" not in legend_lines([*results, measurement("nccl")])[0], "an earlier row may have had others"
    assert not any("Malloc" in row(result) for result in results), "once, and not in every row"


def test_below_a_ratio_to_nccl_stands_what_it_lacks_where_ranks_share_a_gpu() -> None:
    capped = Note.of("NCCL_MAX_CTAS=32")
    for note, lines in ((capped, 0), (SHARED_NOTE | capped, 1)):
        results = []
        for collective, nbytes in product(("allreduce", "broadcast"), (64, 4096)):
            of = {"nbytes": nbytes, "collective": collective}
            results += [replace(measurement(name, (4e-6,) * 7, **of), note=note) for name in ("nccl", "nccl@symmetric")]
            results.append(measurement("ring-pipelined", (2e-6,) * 7, **of))
        said = [line for line in findings(results) if "runs without" in line]
        assert len(said) == lines, note
    assert said[0].endswith("NCCL_MAX_CTAS=32")
    assert implementations()["nccl"].shared_without in said[0]


def test_what_ran_is_told_with_its_protocol_where_there_is_a_choice() -> None:
    table = timed_table(ran=True)
    for algorithm, protocol, shown in (("ring", "ll", "ring/ll"), ("symm", "AGxLL_R", "symm"), ("ce", "", "ce")):
        ran = replace(measurement("nccl"), algorithm=algorithm, protocol=protocol)
        assert shown in row(ran, table=table).split()
        assert legend_lines([ran]) == [RAN_LEGEND]
    assert legend_lines([replace(expected("nccl", 1e-6), algorithm="ring")]) == [], "a model has no log"


def test_a_column_comes_where_it_is_asked_for_and_never_of_a_model() -> None:
    for extra, name in (("report_cputime", "enqueue"), ("memory_report", "memory")):
        assert {"enqueue", "memory"} & set(timed_table(extra=(extra,)).heading().split()) == {name}
    assert timed_table(modelled=True, extra=EXTRAS).heading() == timed_table(modelled=True).heading()


def test_kernels_meet_registered_buffers_besides_the_fastest_nccl_and_nvls_does_not_meet_nccl_at_its_best() -> None:
    def sentences(**times: float) -> list[str]:
        every = [measurement(name, (time,) * 7, nbytes=nbytes) for name, time in times.items() for nbytes in (8, 64)]
        return [line.partition(":")[0] for line in list(findings(every))[1:]]

    beaten, lost = (f"ring-ll {how} at every size" for how in ("beats nccl@registered", "loses to the fastest nccl"))
    pair = {"nccl@registered": 3.0, "ring-ll": 2.0}
    assert (sentences(**pair), sentences(nccl=1.0, **pair)) == ([beaten], [lost, beaten])
    assert len(sentences(nccl=4.0, **pair)) == 1, "registered buffers are the fastest at every size"
    assert [ONE_PROCESS in sentences(nccl=4.0, nvls=time) for time in (2.0, 8.0)] == [True, False]
    picked = replace(measurement("auto"), note=Note(picked="nvls"))
    assert ONE_PROCESS in findings([measurement("nccl", (9.0,) * 7), picked])
    assert ONE_PROCESS not in findings([expected("nccl", 4e-6), expected("nvls", 1e-6)]), "a model has no processes"


def test_percentiles_say_of_how_many_operations_a_sample_is_the_mean() -> None:
    single, many = (replace(measurement(), launches=count) for count in (1, 64))
    assert list(extra_legends(["percentiles"], [single])) == ["min, p95, p99, max: of the samples"]
    assert "each the mean of 64 operations" in next(extra_legends(["percentiles"], [many]))
    mixed = [many, single, Failed(case(), "mpi", "cpu", "died")]
    assert "each the mean of 1 to 64 operations" in next(extra_legends(["percentiles"], mixed))


def test_bandwidths_stand_where_messages_have_a_size() -> None:
    for name, rates in {"broadcast": ["2.048", "2.048"], "barrier": []}.items():
        result = measurement(seconds=(2e-6,) * 7, nbytes=4096, collective=name)
        assert row(result, None).split() == ["4", "KiB", "mpi", "2", "us", "0.0%", *rates, "ok"], name


def test_what_is_not_a_number_says_why() -> None:
    assert "skipped: no way" in row(Skipped(case(), "nvls", "gpu", "no way"), None)
    assert "FAILED: a rank died" in row(Failed(case(), "mpi", "cpu", "a rank died"), None)
    wrong = replace(measurement(seconds=()), mismatch=Mismatch(1, 5, 0, "1.0", "2.0", 7))
    text = "WRONG: rank 1, element 5 (chunk 0): got 1.0, expected 2.0; 7 wrong on this rank"
    assert text in row(wrong, None)
    library = measurement()
    assert "x  ok" not in row(library, library)
    few = measurement(seconds=(1e-6,) * 3, nbytes=4096)
    assert row(few, None).split() == ["4", "KiB", "mpi", "1", "us", "4.096", "4.096", "ok"], "no interval, and no ?"


def test_a_narrow_table_keeps_the_ratio_and_its_heading_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    result = replace(measurement(seconds=(2e-6,) * 7, nbytes=4096), library="MPICH 5.0.2")
    other = replace(measurement(seconds=(8e-6,) * 7, nbytes=4096))
    for width, kept, gone in (
        (80, ["± 95 %", "busbw", "vs mpi"], ["algbw"]),
        (60, ["busbw", "vs mpi"], ["algbw", "± 95 %"]),
        (50, ["vs mpi"], ["algbw", "± 95 %", "busbw"]),
        (40, [], ["algbw", "± 95 %", "busbw", "vs mpi"]),
    ):
        monkeypatch.setenv("COLUMNS", str(width))
        table = timed_table("mpi")
        names, line = table.heading(), row(result, other, table)
        assert all(name in names for name in kept), width
        assert "\n" not in names + timed_table("mpi", modelled=True).heading()
        assert table.left_out() == gone
        assert max(map(len, line.split("\n"))) <= width
        assert ("2.048" in line, "0.0%" in line, "4.00x" in line) == tuple(
            name in kept for name in ("busbw", "± 95 %", "vs mpi")
        )


def below(line: str, heading: str, **ends: str) -> None:
    for name, value in ends.items():
        word = name.replace("_", " ")
        assert line.index(value) + len(value) == heading.index(word) + len(word), word


def expected(implementation: str, seconds: float, **more: Any) -> Prediction:
    return Prediction(case(nbytes=4096), implementation, seconds, seconds / 2, seconds * 2, **more)


def test_a_predicted_row_has_band_and_way_and_says_that_it_is_one() -> None:
    library = expected("nccl", 4e-6)
    line, names = (
        row(expected("ring-ll", 2e-6, algorithm="ring", protocol="ll"), library),
        timed_table("nccl", modelled=True).heading(),
    )
    assert " ".join(line.split()) == "4 KiB ring-ll 2 us 1 us .. 4 us 2.048 2.048 2.00x ring/ll predicted"
    below(line, names, size="KiB", time="2 us", nine_in_ten="4 us", vs_nccl="2.00x")
    assert names.index("algorithm") == line.index("ring/ll")
    assert row(expected("nccl", 1.0, note=Note.of("NICs at 50%")), None).endswith("  predicted, NICs at 50%")


def test_a_setting_without_a_time_says_why_beside_the_other() -> None:
    table = timed_table(width=18)
    for line, letter in zip(paired_rows((measurement(), measurement()), table), "AB", strict=True):
        assert line.split()[2:5] == [letter, "mpi", "1"]
        below(line, table.heading(), time="1 us")
    failed, skipped = Failed(case(), "mpi", "cpu", "died"), Skipped(case(), "mpi", "cpu", "no way")
    for result, word in ((failed, "FAILED: died"), (skipped, "no way")):
        first, second = paired_rows((measurement(), result), table)
        assert first.endswith("ok")
        assert second.split()[2:4] == ["B", "mpi"]
        assert second.endswith(word)
    (line,) = paired_rows((skipped, skipped), table)
    assert line.split() == ["1", "KiB", "mpi", "skipped:", "no", "way"]
    assert len(paired_rows((skipped, failed), table)) == 2
