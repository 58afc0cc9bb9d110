"""Tables of nccl-tests 2.20, and of its programs that measure no collective; lines are as its sources print them."""

from pathlib import Path

import pytest

from collbench.commands.formats.importing import remarks
from collbench.errors import RunFileError
from tests.commands.formats.goldens import DATA, parsed, reported
from tests.conftest import Command

RANKS = """#
# Using devices
#  Rank  0 Group  0 Pid  41210 on     node07 device  0 [0000:0a:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  41210 on     node07 device  1 [0000:18:00] NVIDIA H100 80GB HBM3
#
"""
OPENING = """# nccl-tests version 2.20.0 (b4d5bee) nccl-headers=23203 nccl-library=23203
# Collective test starting: PROGRAM
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 \
validation: 1 graph: 0 unalign: 0
"""
NAMES = f"""\
#{"":62}out-of-place{"":23}in-place
#       size         count      type   redop    root{"     time   algbw   busbw  #wrong" * 2}
#        (B)    (elements)                          {"     (us)  (GB/s)  (GB/s)        " * 2}
"""
ALLREDUCE = (
    "     1048576        262144     float     sum      -1"
    "    30.11   34.82   34.82       0    30.40   34.49   34.49       0\n"
)
OTHERS = {  # programs of which there is no collective here, and what they print
    "alltoallv_perf": """\
# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=generated nranks=2 total_bytes=1048576 spread=0.500 time_usec=30.11
#   rank=0 send_bytes=1048544 recv_bytes=1048544 alg_bw=34.82 bus_bw=17.41
#   rank=1 send_bytes=1048544 recv_bytes=1048544 alg_bw=34.82 bus_bw=17.41
     1048544        131072     float    none      -1    30.11   34.82   17.41       0    30.40   34.49   17.25     N/A
""",
    "hypercube_perf": """\
     1048576        131072     float              -1    30.11   17.41   17.41       0    30.40   17.25   17.25       0
""",
    "bisection_perf": """\
     1048576        262144     float    none      -1    30.11   34.82   34.82       0    30.40   34.49   34.49     N/A
""",
    "all_reduce_perf_bisection": ALLREDUCE,
    "sendrecv_bisection_perf": ALLREDUCE.replace("sum ", "none"),
}
FOOTER = """# Out of bounds values : 0 OK
# Avg bus bandwidth    : 34.6
#
# Collective test concluded: PROGRAM
#
"""
GIN = """# GIN PUT_SIGNAL BANDWIDTH/MESSAGE RATE: rsm=gpu, local mem type=device, remote mem type=host, ctas=1, \
threads=1
     Size(B)    Num_Messages    Bandwidth(MiB/s)    Message_Rate(MPPS)
           4             500               1.907                 0.500
     4194304             500           42000.000                 0.010
# GIN PUT PING-PONG LATENCY: rsm=gpu, local mem type=device, remote mem type=device
     Size(B)     Iters     Latency(us)
        1024       500           4.120
"""


def log(program: str, rows: str) -> str:
    return (OPENING + RANKS + NAMES + rows + FOOTER).replace("PROGRAM", program)


@pytest.mark.parametrize("program", OTHERS)
def test_programs_without_a_collective_here_are_named_and_taken_for_no_other(program: str) -> None:
    alone = log(program, OTHERS[program])
    of_old = f"$ mpirun -np 2 ./build/{program} -b 1M\n" + RANKS + NAMES + OTHERS[program]
    for text in (alone, of_old, "# nThread 1 nGpus 2\n" + of_old):
        (test,) = parsed(text, collective="alltoall" if text is alone else "")
        assert not test.results
        assert program in test.left_out[0]
    both = alone + log("all_reduce_perf", ALLREDUCE)
    assert [row.case.collective.name for row in reported(parsed(both))] == ["allreduce", "allreduce"]


def test_json_of_such_a_program_is_no_other_collective_whatever_the_user_says() -> None:
    text = (DATA / "json_v3_percentiles.json").read_text().replace("all_reduce_perf", "alltoallv_perf")
    (test,) = parsed(text, collective="alltoall")
    assert not test.results
    assert "alltoallv_perf" in test.left_out[0]


def test_tables_of_gin_are_named_and_left_out(here: Command, tmp_path: Path) -> None:
    first, second, others = parsed(GIN + log("all_reduce_perf", ALLREDUCE))
    assert [test.left_out[0].split(" measures ")[0] for test in (first, second)] == [
        "the table of GIN PUT_SIGNAL BANDWIDTH/MESSAGE RATE",
        "the table of GIN PUT PING-PONG LATENCY",
    ]
    assert len(reported([others])) == 2
    (tmp_path / "gin.log").write_text(GIN)
    done = here("import", "gin.log")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "GIN PUT_SIGNAL" in done.stderr


def test_per_iteration_columns_and_bitwise_ones_are_read_and_a_mismatch_is_told() -> None:
    more = "  #bitdiff    i_min    i_max    i_p99    i_cv%"
    names = NAMES.replace("#wrong", "#wrong" + more)
    figures = "       0         0    29.90    31.20    31.20     1.10"
    row = ALLREDUCE.replace("       0", figures)
    opening = OPENING.replace("unalign: 0", "unalign: 4") + (
        "# Per-Iteration Report: CUDA event timing; i_* uses max over process rows; summary skips first 2 iterations\n"
        "# Bitwise Repeatability: 3 comparisons after one reference run\n"
    )
    footer = FOOTER.replace("# Avg", "# Bitwise mismatches   : 2 FAILED\n# Avg")
    text = (opening + RANKS + names + row + footer).replace("PROGRAM", "all_reduce_perf")
    tests = parsed(text)
    assert [(row.case.in_place, row.case.unalign, row.seconds) for row in reported(tests)] == [
        (False, 4, pytest.approx(30.11e-6)),
        (True, 4, pytest.approx(30.4e-6)),
    ]
    assert dict(tests[0].machine.versions)["nccl"] == "2.32.3"
    assert any("Bitwise mismatches" in remark for remark in remarks(tests))


def test_iterations_that_were_skipped_are_no_samples_and_late_buffers_are_told_by_the_arguments() -> None:
    text = (DATA / "json_v3_percentiles.json").read_text().replace('"version": 3', '"version": 4')
    text = text.replace('"skipped_iterations": 0', '"skipped_iterations": 1', 1)
    text = text.replace('all_reduce_perf",', 'all_reduce_perf", "-K", "1", "-u", "3",', 1)
    first = reported(parsed(text))[0]
    assert first.samples == pytest.approx((14.04e-6, 14.2e-6, 14.7e-6))
    assert first.case.unalign == 3


def test_inspectors_metrics_are_refused_with_what_to_set_and_its_json_is_read_of_any_version() -> None:
    labels = 'version="v5.1",slurm_job_id="unknown",node="node004-T01",gpu="GPU0",comm_name="DP Group 0",n_nodes="1"'
    metrics = f'nccl_bus_bandwidth_gbs{{{labels},nranks="4",collective="AllReduce",message_size="4-5GB"}} 678.263\n'
    with pytest.raises(RunFileError, match="NCCL_INSPECTOR_PROM_DUMP=0"):
        parsed(metrics)
    newer = (DATA / "inspector_v4_4.log").read_text().replace('"v4.4"', '"v5.1"')
    (test,) = parsed(newer)
    assert (test.version, len(test.results)) == ("v5.1", 3)


def test_a_column_of_dates_stands_in_the_header_too() -> None:
    names = [line + "           timestamp" * ("size" in line) for line in NAMES.splitlines()]
    row = ALLREDUCE.rstrip() + "  2026-11-27 15:56:24\n"
    text = OPENING.replace("PROGRAM", "all_reduce_perf") + RANKS + "\n".join(names) + f"\n{row}{FOOTER}"
    out_of_place, in_place = reported(parsed(text))
    assert (out_of_place.typical, in_place.typical) == (pytest.approx(30.11e-6), pytest.approx(30.4e-6))
