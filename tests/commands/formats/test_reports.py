"""Logs of people's own machines, which were once read wrongly, and other instances of each kind."""

import re
from pathlib import Path

import pytest

from collbench.commands.formats.importing import grouped, remarks
from collbench.errors import RunFileError, UsageError
from tests.commands.formats.goldens import DATA, counted, parsed, reported

REPORTS = Path(__file__).with_name("reports")
LOG = (DATA / "nccl_tests_2_19.txt").read_text()
HEADER = LOG[LOG.index("#       size") : LOG.index("#        (B)")]
END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1\n"


def text_of(name: str) -> str:
    return next(REPORTS.glob(f"{name}*")).read_text()


def rows_of(text: str, ranks: int | None = None, op: str = "") -> list[tuple[str, int, int, bool, float]]:
    rows = []
    for row in reported(parsed(text, ranks, op)):
        case = row.case
        rows.append((case.collective.name, case.ranks, case.nbytes, case.in_place, round(row.seconds * 1e6, 3)))
    return rows


def said(text: str, ranks: int | None = None) -> str:
    return "\n".join(remarks(parsed(text, ranks)))


def row(nbytes: int, ranks: int, time: str, factor: float | None = None, kind: str = "float     sum") -> str:
    """A row as nccl-tests prints it, of an all-reduce unless a factor says otherwise."""
    algbw = nbytes / float(time) / 1e3
    busbw = algbw * (2 * (ranks - 1) / ranks if factor is None else factor)
    return f"{nbytes} {nbytes // 4} {kind} -1 {time} {algbw:.2f} {busbw:.2f} 0 {time} {algbw:.2f} {busbw:.2f} 0\n"


def test_rows_of_other_ranks_are_left_out_and_say_which_would_fit() -> None:
    text = text_of("F5-one-row")
    assert {(ranks, nbytes) for _, ranks, nbytes, _, _ in rows_of(text, 8)} == {(8, 2**20), (8, 2**21), (8, 2**22)}
    assert "of bus bandwidth on 16 ranks, not 8" in said(text, 8)
    with pytest.raises(UsageError, match="on 16 ranks; give --ranks 8"):
        parsed(text, 16)
    mixed = HEADER + "".join(row(2**at, 64 if at == 28 else 32, "5200.9") for at in range(26, 31))
    assert {nbytes for _, _, nbytes, _, _ in rows_of(mixed, 32)} == {2**26, 2**27, 2**29, 2**30}
    assert "on 64 ranks, not 32" in said(mixed, 32)


def test_a_bare_table_is_of_the_ranks_that_its_own_bandwidths_leave_whatever_is_given() -> None:
    for name, first, second in (("F6", 8, 16), ("F5-64", 32, 64)):
        for given in (None, first, second, 7):
            rows = rows_of(text_of(name), given)
            assert [ranks for _, ranks, *_ in dict.fromkeys(rows)] == sorted(ranks for _, ranks, *_ in rows)
            assert {ranks for _, ranks, *_ in rows} == {first, second}, (name, given)
        assert len(grouped(parsed(text_of(name)))) == 2
        assert f"has {second} ranks, unlike the table above it" in said(text_of(name))


def test_what_is_given_holds_for_the_tables_that_do_not_say_themselves() -> None:
    broadcast = row(2**20, 4, "41.2", 1.0, "float    none").replace(" -1 ", " 0 ") * 2
    other = LOG.replace("all_reduce_perf", "broadcast_perf")
    listed = other[: other.index("#       size")] + HEADER + broadcast + END + "#\n"
    silent = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8\n" + HEADER + broadcast + END
    assert [ranks for _, ranks, *_ in rows_of(listed + silent, 16, "broadcast")] == [4] * 4 + [16] * 4
    gathered = row(2**20, 4, "41.2", 0.75, "float    none").replace("262144", "65536")
    named = listed[: listed.index("#       size")].replace("broadcast", "all_gather") + HEADER + gathered + END
    both = rows_of(f"{named}#\n# nThread 1 nGpus 1 minBytes 8\n{HEADER}{gathered}{END}", 4, "alltoall")
    assert [collective for collective, *_ in both] == ["allgather"] * 2 + ["alltoall"] * 2


def test_what_is_given_does_not_change_what_json_and_csv_say() -> None:
    for name in ("json_v2_torn.json", "rccl_mpi.csv", "tidy.csv"):
        text = (DATA / name).read_text()
        for ranks, op in ((2, ""), (None, "broadcast"), (1, "sendrecv")):
            assert rows_of(text, ranks, op) == rows_of(text), (name, ranks, op)


def test_the_last_line_names_the_collective_and_one_that_contradicts_the_first_is_told() -> None:
    assert rows_of(text_of("F8"))[0] == ("alltoall", 8, 2**33, False, 11126.0)
    for name, program in (("allgather", "all_gather_perf"), ("alltoall", "alltoall_perf")):
        changed = text_of("F8").replace("alltoall_perf", program)
        assert {collective for collective, *_ in rows_of(changed)} == {name}
    bare = text_of("F6").replace("concluded: all_reduce", "concluded: reduce", 1)
    assert "its first line says all_reduce_perf, its last reduce_perf" in said(bare)
    with pytest.raises(UsageError, match="allgather, alltoall would fit; give --op NAME"):
        parsed(text_of("07a"))
    assert len(rows_of(text_of("07a"), op="alltoall")) == 48


def test_sizes_with_units_and_thousands_are_read_and_those_that_no_count_fits_are_told() -> None:
    for name in ("F9-size-512M", "F9-size-thousands"):
        text = text_of(name)
        lines = sum("float" in line for line in text.splitlines())
        rows = rows_of(text)
        assert ("allreduce", 8, 2**29, False, 2574.0) in rows
        assert ("allreduce", 8, 2**29, False, 5148.1) not in rows
        assert len(rows) / 2 + counted(parsed(text)) == lines
    for size in ("512MB", "512MiB", "0.5G", "524288K", "0.5 GB"):
        text = text_of("F9-size-512M").replace("512M 134217728", f"{size} 134217728")
        assert len(rows_of(text)) / 2 + counted(parsed(text)) >= 7, size
        assert (("allreduce", 8, 2**29, False, 2574.0) in rows_of(text)) == (" " not in size), size
    decimal = text_of("F9-size-512M").replace("512M 134217728", "512MB 128000000")
    assert ("allreduce", 8, 512_000_000, False, 2454.8) in rows_of(decimal.replace("2574.0", "2454.8"))
    small = HEADER + "16 2 float sum -1 10.0 0.00 0.00 0 10.0 0.00 0.00 0\n" + row(2**20, 4, "41.2")
    assert {nbytes for _, _, nbytes, _, _ in rows_of(small, 4, "allreduce")} == {2**20}
    assert "contradicts its count and type" in said(small, 4)


def test_digits_below_a_gigabyte_per_second_count() -> None:
    rows = rows_of(text_of("F10"), 4)
    assert len(rows) == 4
    assert not {time for *_, time in rows} & {1786.2, 3568.2}
    for ranks in (2, 3, 8, 64):
        with pytest.raises(UsageError, match="give --ranks 4"):
            parsed(text_of("F10"), ranks)


def test_times_that_no_operation_takes_are_left_out_in_both_places() -> None:
    words = ("nan", "-nan", "inf", "0", "0.00", "-12.90", "1e300", "1e-300", "1e17", "1e999", "9" * 5000)
    for word in words:
        for in_place, time in enumerate(("12.90", "12.87")):
            tests = parsed(LOG.replace(f"   {time} ", f" {word} ", 1))
            kept = [(row.case.nbytes, row.case.in_place) for row in reported(tests)]
            assert (8, bool(in_place)) not in kept, word
            assert len(kept) >= 12, "a word that is no number costs the other place too"
            assert counted(tests) == 1, word


def test_a_version_of_osu_with_columns_that_its_header_lacks_is_read() -> None:
    text = text_of("20")
    rows = rows_of(text)
    assert [time for *_, time in rows][:2] == [50.89, 50.2]
    assert {(collective, ranks) for collective, ranks, *_ in rows} == {("reduce", 96)}
    assert len(rows) == 10
    odd = text.replace("18.27 ", "98.27 ", 1)  # a least value above the mean
    assert (len(rows_of(odd)), "left out: 1 row" in said(odd)) == (9, True)


def test_a_refusal_says_what_to_do() -> None:
    topology = "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n"
    for text, words in (
        (text_of("15-"), "nvbandwidth -j"),
        (re.sub("^", "[1,0]<stdout>:", text_of("15-"), flags=re.MULTILINE), "nvbandwidth -j"),
        ("memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n      0      1\n 0  N/A  390.1\n", "nvbandwidth -j"),
        (text_of("16"), r"jq -c \."),
        ('[{"header": {"id": "0x1", "rank": 0, "n_ranks": 8}}]\n', r"jq -c \.\[\]"),
        ("# HELP nccl_bus_bandwidth_gbs x\n" + text_of("16"), r"jq -c \."),
        ("".join(line for line in LOG.splitlines(True) if re.match(r" +\d+ +\d+ +float", line)), "copy the header"),
        ("n1:7:7 [0] NCCL INFO Bootstrap: Using eth0\n" * 9, "NCCL's own log without a table"),
        ("<!DOCTYPE html>\n<html><body>Not found</body></html>\n", "an HTML page; save the log itself"),
        ('[{"numCycle": 0, "name": "AllReduce", "size": 8, "inPlace": 0, "busBw": 0.1}]', "-Z csv"),
        ('{"kind":"header","format":3}\n', "already a run file of collbench"),
        ("# Size       Avg Latency(us)\n8    1.5\n", "OSU without its title"),
        (topology, "known formats"),
    ):
        with pytest.raises(RunFileError, match=words) as error:
            parsed(text)
        assert "\n" not in str(error.value)


COMMANDS = {
    "NCCL_PROTO=LL mpirun -np 4 -x NCCL_ALGO=Ring -x FOO ./all_reduce_perf": {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"},
    "env NCCL_X=1 ./build/all_reduce_perf -g 4": {"NCCL_X": "1"},
    "$ mpirun -np 4 \\\n  -x NCCL_ALGO=Tree \\\n  ./all_reduce_perf -b 8": {"NCCL_ALGO": "Tree"},
    "mpiexec -n 4 -genv NCCL_ALGO Ring -env NCCL_X 2 all_reduce_perf": {"NCCL_ALGO": "Ring", "NCCL_X": "2"},
    "srun -n4 --export=ALL,NCCL_X=1,NCCL_IB_HCA=mlx5_0 all_reduce_perf": {"NCCL_X": "1", "NCCL_IB_HCA": "mlx5_0"},
    "docker run --env NCCL_X=1 -e NCCL_Y='a b' image all_reduce_perf -g 4": {"NCCL_X": "1", "NCCL_Y": "a b"},
    "mpirun -n 4 --mca mca_base_env_list 'NCCL_X=1;NCCL_Y=2' all_reduce_perf": {"NCCL_X": "1", "NCCL_Y": "2"},
    "bash -c 'NCCL_X=1 ./all_reduce_perf -g 4'": {"NCCL_X": "1"},
    "export NCCL_X=1; NCCL_Y=2 ./all_reduce_perf -g 4": {"NCCL_X": "1", "NCCL_Y": "2"},
    "# NCCL_X=1 ./all_reduce_perf -g 4": {},
    "mpirun -np 4 ./all_reduce_perf -b 8 # -x NCCL_ALGO=Ring": {},
    "mpirun -np 4 -x NCCL_X=1 \\\n  ./all_reduce_perf -b 8  # -x NCCL_ALGO=Ring": {"NCCL_X": "1"},
    "export NCCL_X=1 # NCCL_Y=2\n./all_reduce_perf -g 4": {"NCCL_X": "1"},
    "[root@n1 ~]# mpirun -np 4 -x NCCL_X=1 ./all_reduce_perf": {"NCCL_X": "1"},
    "/ # NCCL_X=1 ./all_reduce_perf -g 4": {"NCCL_X": "1"},
    'command: ["mpirun","-np","4","-x","NCCL_ALGO=Ring","./build/all_reduce_perf","-b","1M"]': {"NCCL_ALGO": "Ring"},
    "args: ['mpirun', '-x', 'NCCL_X=1', '-x', 'NCCL_Y=2,3', 'all_reduce_perf']": {"NCCL_X": "1", "NCCL_Y": "2,3"},
    "mpirun -np 4 -x NCCL_ALGO=$a -x NCCL_X=1 ./all_reduce_perf": {"NCCL_X": "1"},
    'export NCCL_P2P_DISABLE="${P2P_DISABLE:-0}"; NCCL_X=1 ./all_reduce_perf -g 4': {"NCCL_X": "1"},
    "mpiexec -n 4 -genv NCCL_ALGO $ALGO -env NCCL_X 1 all_reduce_perf": {"NCCL_X": "1"},
    "mpirun -np 4 -x FI_PROVIDER=efa -x RCCL_MSCCL_ENABLE=0 -x WIFI_X=1 ./all_reduce_perf": {
        "FI_PROVIDER": "efa",
        "RCCL_MSCCL_ENABLE": "0",
    },
    "FI_EFA_USE_DEVICE_RDMA=0 ./all_reduce_perf -g 4": {"FI_EFA_USE_DEVICE_RDMA": "0"},
    "SECRET=1 ./all_reduce_perf -g 4": {},
}


def test_variables_of_a_command_hold_for_its_tables_and_exports_for_all_after() -> None:
    for command, variables in COMMANDS.items():
        (test,) = parsed(f"{command}\n{LOG}")
        assert dict(test.machine.variables) == variables, command
    first, second, third = parsed(
        f"root@n:~# export NCCL_NVLS_ENABLE=0\nNCCL_PROTO=LL ./all_reduce_perf -g 4\n{LOG}"
        f"+ ./all_reduce_perf -g 4\n{LOG}unset NCCL_NVLS_ENABLE\nNCCL_ALGO=Ring ./all_reduce_perf -g 4\n"
        f"n:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Tree.\n{LOG}"
    )
    assert dict(first.machine.variables) == {"NCCL_NVLS_ENABLE": "0", "NCCL_PROTO": "LL"}
    assert dict(second.machine.variables) == {"NCCL_NVLS_ENABLE": "0"}
    assert dict(third.machine.variables) == {"NCCL_ALGO": "Tree"}, "NCCL's own word wins"
    assert len(grouped([first, second, third])) == 3
    (test,) = parsed("export NCCL_X=1\nmpirun -np 4 osu_allreduce\n" + (DATA / "osu_nccl_full.txt").read_text(), 8)
    assert dict(test.machine.variables) == {"NCCL_X": "1"}
    (test,) = parsed(f"NCCL_X=1 mpirun -n 4 ./all_reduce_perf\nloading all_reduce_perf ...\n{LOG}")
    assert dict(test.machine.variables) == {"NCCL_X": "1"}, "a message is no command"
    osu = "# OSU MPI Allreduce Latency Test v7.3\n# Size       Avg Latency(us)\n8    1.50\n16    2.50\n"
    tests = parsed(f"mpirun -n 4 -x UCX_TLS=rc osu_allreduce\n{osu}mpirun -n 4 osu_allreduce\n{osu}")
    assert [dict(test.machine.variables) for test in tests] == [{"UCX_TLS": "rc"}, {}]


def test_what_nccl_logs_of_its_channels_is_kept() -> None:
    said_of_channels = (
        "n:1:1 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
        "n:1:1 [0] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via P2P/CUMEM comm 0x5 nRanks 04\n"
        "n:1:1 [0] NCCL INFO 16 coll channels, 16 collnet channels, 12 nvls channels, 32 p2p channels\n"
    )
    at = LOG.index("#       size")
    (test,) = parsed(LOG[:at] + said_of_channels + LOG[at:])
    kept = {"transport": "NET/IB/GDRDMA, P2P/CUMEM", "cards": "0", "channels": "16", "nvls": "12"}
    assert test.layout["log"] == kept
    _, second = parsed(LOG[:at] + said_of_channels + LOG[at:] + LOG)
    assert "log" not in second.layout
    cards = "".join(said_of_channels.splitlines(True)[0].replace("IB/0", f"IB/{card}") for card in (3, 0, 3))
    (test,) = parsed(LOG[:at] + cards + LOG[at:])
    assert test.layout["log"] == {"transport": "NET/IB/GDRDMA", "cards": "0, 3"}
    for said_by_nccl, transport in (
        ("Channel 00 : 2[8000] -> 1[5000] via direct shared memory", "SHM/direct"),
        ("Using network Socket", "NET/Socket"),
        ("Using internal Network Socket", "NET/Socket"),
        ("Using network FastSocket", "NET/Socket"),
        ("NET/OFI Selected Provider is tcp;ofi_rxm (found 2 nics)", "NET/Socket"),
        ("NET/OFI Selected provider is sockets, fabric is 10.0.0.0/12", "NET/Socket"),
        ("NET/OFI Selected Provider is efa (found 32 nics)", ""),
        ("Using network IB", ""),
        ("NET/Socket : Using [0]eth0:10.0.0.1<0>", ""),  # of a network that is known, and perhaps not used
    ):
        (test,) = parsed(f"{LOG[:at]}n:1:1 [0] NCCL INFO {said_by_nccl}\n{LOG[at:]}")
        assert test.layout.get("log", {}) == ({"transport": transport} if transport else {}), said_by_nccl
    for named in ("set to", "set by environment to"):
        (test,) = parsed(f"{LOG[:at]}n:1:1 [0] NCCL INFO NCCL_IB_HCA {named} mlx5_0\n{LOG[at:]}")
        assert dict(test.machine.variables) == {"NCCL_IB_HCA": "mlx5_0"}


def test_programs_that_print_into_one_log_are_cut_apart() -> None:
    lines = LOG.splitlines()
    for first, second in (
        ("pod-a | ", "pod-b | "),
        ("[1,0]<stdout>:", "[1,8]<stdout>:"),
        ("node1: ", "node2: "),
        ("[pod/a/mpi] 2026-03-03T10:11:12.1Z ", "[pod/b/mpi] 2026-03-03T10:11:13.2Z "),
        ("(head, rank=0, pid=1) ", "(worker, rank=1, pid=2, ip=10.0.0.2) "),
    ):
        for late in (0, 3):
            pairs = zip([*lines, *[""] * late], [*[""] * late, *lines], strict=True)
            text = "".join(f"{first}{line}\n{second}{other}\n" for line, other in pairs)
            one, two = parsed("mpirun -np 8 -x NCCL_X=1 run.sh all_reduce_perf\n" + text)
            assert str(one.layout["prefix"])[:4] in first
            assert str(two.layout["prefix"])[:4] in second
            assert len(one.results) == len(two.results) == 14, first
            assert not one.left_out
            assert dict(two.machine.variables) == {"NCCL_X": "1"}


def test_a_log_of_one_program_is_not_cut_by_clocks_numbers_or_other_ranks_words() -> None:
    whole = rows_of(LOG)
    for words in ("2026-03-0{day}T10:11:12Z {line}", "{at}: {line}", "[1,0]<stdout>:{line}\n[1,{day}]<stderr>:warning"):
        lines = enumerate(LOG.splitlines())
        text = "".join(words.format(at=at, line=line, day=1 + at % 9) + "\n" for at, line in lines)
        (test,) = parsed(text)
        assert "prefix" not in test.layout
        assert rows_of(text) == whole


def test_an_unknown_shape_of_row_is_counted_in_the_tables_of_each_tool() -> None:
    osu = (DATA / "osu_nccl_full.txt").read_text()
    at = max(number for number, line in enumerate(osu.splitlines()) if line[:1].isdigit())
    for odd in ("1,2,3 x", "64K,12.3", "8192 - - -"):
        lines = osu.splitlines(keepends=True)
        tests = parsed("".join([*lines[:at], odd + "\n", *lines[at:]]), 8)
        assert len(tests[0].results) == 3, odd
        assert len(tests[0].left_out) == 1, odd
    thousands = osu.replace("\n1048576 ", "\n1,048,576 ")
    assert rows_of(thousands, 8) == rows_of(osu, 8)


def test_no_row_of_osu_is_read_wrongly_or_lost_without_a_word() -> None:
    head = "$ mpirun -np 8 osu_allreduce\n# OSU MPI Allreduce Latency Test v7.3\n# Size       Avg Latency(us)\n"
    text = head + "".join(f"{4 << at:<10} {17.25 * (at + 9):20.2f}\n" for at in range(20))
    whole = rows_of(text)
    times = ("nan", "-293.25", "0.00", "1e300", "29\n3.25", "293.\n25", "293,25", "293.25 7")
    broken = ("104\n8576 ", "104\n\n8576 ", "104\0008576 ", "row 1048576 ", "0x100000 ", "1 MB ", "1048576;")
    for old, words in (("293.25", times), ("1048576 ", (*broken, "1,048,576 ", "1M ", "1024K "))):
        assert old in text
        for word in words:
            changed = text.replace(old, word)
            assert set(rows_of(changed)) <= set(whole), word
            assert len(rows_of(changed)) + counted(parsed(changed)) >= 20, word
    for one, other in (("pod-a | ", "pod-b | "), ("[1,0]<stdout>:", "[1,8]<stdout>:"), ("n1: ", "n2: ")):
        both = "".join(f"{one}{line}\n{other}{line}\n" for line in text.splitlines())
        first, second = parsed(both)
        assert first.layout != second.layout
        assert rows_of(both) == whole * 2


BROADCAST = (
    HEADER + "".join(row(2**at, 4, "41.2", 1.0, "float    none").replace(" -1 ", " 0 ") for at in (20, 22)) + END
)


def ranks_in(text: str, ranks: int | None = None, op: str = "") -> list[int]:
    return list(dict.fromkeys(ranks for _, ranks, *_ in rows_of(text, ranks, op)))


def test_a_list_that_was_trimmed_is_of_the_ranks_that_the_command_starts() -> None:
    listed = LOG[LOG.index("# nThread") : LOG.index("#       size")].replace("nGpus 4", "nGpus 1")
    for started, ranks in (("mpirun -np 16 ", 16), ("", 4), ("srun -n 2 ", 4)):
        assert ranks_in(f"{started}broadcast_perf\n{listed}{BROADCAST}") == [ranks], started
    assert "12 of 16 are missing" in said(f"mpirun -np 16 ./broadcast_perf\n{listed}{BROADCAST}")


def test_a_whole_list_is_not_outnumbered_by_the_command_of_another_table_or_by_the_user() -> None:
    listed = LOG[LOG.index("# nThread") : LOG.index("#       size")].replace("nGpus 4", "nGpus 1")
    first = f"mpirun -np 16 ./broadcast_perf\n{listed}{BROADCAST}#\n"
    assert [test.machine.ranks for test in parsed(f"{first}{listed}{BROADCAST}")] == [16, 4]
    assert ranks_in(f"mpirun -np 16 ./broadcast_perf\n{listed}{BROADCAST}", 4) == [4]
    table = HEADER + row(2**28, 2, "9000.1") + END  # an exchange of 4 ranks, or a sum of 2
    for ranks in (None, 2):
        with pytest.raises(UsageError, match="on 4 ranks; give --op NAME"):
            parsed(f"{listed}{table}", ranks)
    assert ranks_in(f"{listed}{table}", op="sendrecv") == [4]


def test_a_command_that_is_commented_out_tells_nothing() -> None:
    commented = "mpirun -np 16 broadcast_perf -g 1\n#mpirun -np 8 reduce_perf -g 1\n"
    assert ranks_in(commented + BROADCAST) == [16]
    assert ranks_in(f"# mpirun -np 16 broadcast_perf\n{BROADCAST}") == [16], "behind the prompt of a shell"


def test_a_test_without_a_row_that_is_read_says_so_in_the_run() -> None:
    hung = f"{LOG}# Collective test starting: alltoall_perf\n{HEADER} 1048576 65536 float none -1"
    for tests in (parsed(hung + "\n"), parsed(hung.replace("none", "fp9") + " 1 1 1 0 1 1 1 0\n")):
        (run,) = grouped(tests)
        assert len(run.results) == 14
        assert run.header(()).imported.left_out


def test_a_launcher_that_does_not_say_how_many_processes_it_starts_tells_no_ranks() -> None:
    settings = "# nThread 1 nGpus 8 minBytes 1048576 maxBytes 4194304\n"
    for started in ("srun -N 2", "srun -N2 -l", "ibrun", "mpirun --hostfile hosts", "mpirun -np 4 a : -np 4"):
        with pytest.raises(UsageError, match="it lists no ranks; give --ranks N"):
            parsed(f"{started} ./broadcast_perf -g 8\n{settings}{BROADCAST}")
        assert ranks_in(f"{started} ./broadcast_perf -g 8\n{settings}{BROADCAST}", 16) == [16]
    assert ranks_in(f"./broadcast_perf -g 8\n{settings}{BROADCAST}") == [8]


def test_a_bare_table_is_of_the_ranks_of_the_table_above_where_its_bandwidths_fit_all() -> None:
    above = "".join(HEADER + row(2**28, ranks, "9000.1") + END for ranks in (8, 16))
    assert rows_of(f"# nThread 1 nGpus 8 minBytes 8 maxBytes 8\n{above}{BROADCAST}")[-1][:2] == ("broadcast", 16)


def test_the_ranks_of_osu_are_those_of_its_own_launcher() -> None:
    head = "# OSU MPI Allreduce Latency Test v7.3\n# Size       Avg Latency(us)\n4    17.25\n8    18.50\n"
    for above in (
        "$ srun -n 1 nvidia-smi\n",
        "$ mpirun -np 2 hostname\n",
        "$ mpirun -np 16 osu_bcast\n$ mpirun -hostfile hosts osu_allreduce\n",
        "$ jsrun -n 4 -a 6 osu_allreduce\n",
        "$ mpirun -np 4 osu_allreduce : -np 4 osu_allreduce\n",
    ):
        with pytest.raises(UsageError, match="do not tell the number of ranks; give --ranks N"):
            parsed(above + head)
    assert ranks_in("$ srun -n 1 nvidia-smi\n$ mpirun -np 16 \\\n  osu_allreduce\n" + head) == [16]


def test_what_is_not_counted_in_place_only_is_an_exchange() -> None:
    table = HEADER + "".join(row(2**at, 2, "5200.9") for at in range(26, 29))
    assert {collective for collective, *_ in rows_of(table, 2)} == {"allreduce"}
    uncounted = re.sub(r" 0$", " N/A", table, flags=re.MULTILINE)
    assert {collective for collective, *_ in rows_of(uncounted, 2)} == {"sendrecv"}
    below = "./all_reduce_perf -g 2\n" + table + END + uncounted
    assert [collective for collective, *_ in dict.fromkeys(rows_of(below, 2))][::6] == ["allreduce", "sendrecv"]
    named = "# Collective test starting: all_reduce_perf\n" + uncounted
    assert {collective for collective, *_ in rows_of(named, 2)} == {"allreduce"}


def test_wrong_elements_are_seen_whatever_became_of_the_columns_name() -> None:
    wrong = LOG.replace("0.22       0\n", "0.22       7\n", 1)
    for last in ("#wrong", "#wron", "#wr", '#wrong\\n"', "#wrong<br>", "#wrong(s)"):
        text = re.sub(r"#wrong( *)$", last.replace("\\", "\\\\"), wrong, flags=re.MULTILINE)
        assert 7 in {row.wrong_elements for row in reported(parsed(text))}, last
    for width in range(50, 75):
        pieces = (line[at : at + width] for line in LOG.splitlines() for at in range(0, max(1, len(line)), width))
        assert not any(row.wrong_elements for row in reported(parsed("\n".join(pieces) + "\n", 4))), width


def test_a_launcher_that_marks_each_write_marks_the_middle_of_rows() -> None:
    for tag in ("[0]", "[12]"):
        text = re.sub(r"(?m)^(.*float     sum      -1)(.*?0)(    .*)$", rf"\1{tag}\2{tag}\3", LOG)
        assert text.count(f"-1{tag} ") == 7
        assert rows_of(re.sub("(?m)^", f"{tag} ", text)) == rows_of(LOG)


def test_units_may_stand_at_the_names_of_columns() -> None:
    units = {"size": "(B)", "count": "(elements)", "time": "(us)", "algbw": "(GB/s)", "busbw": "(GB/s)"}
    header = " ".join(f"{name}{units.get(name, '')}" for name in HEADER.splitlines()[0].split())
    assert rows_of(header + "\n" + row(2**28, 4, "9000.1"), 4) == rows_of(HEADER + row(2**28, 4, "9000.1"), 4)


def test_tests_with_other_options_are_no_rounds_of_each_other() -> None:
    settings, rest = LOG[LOG.index("# nThread") :].split("\n", 1)
    for one, other in (
        ("./all_reduce_perf -a 0", "./all_reduce_perf -a 3"),
        ("./all_reduce_perf", "./all_reduce_perf -R 1"),
    ):
        first, second = parsed(f"{one}\n{settings}\n{rest}{other}\n{settings}\n{rest}")
        assert first.sweep != second.sweep, other
    first, second = parsed(f"./all_reduce_perf\n{settings}\n{rest}./all_reduce_perf -a 1 -z 0\n{settings}\n{rest}")
    assert first.sweep == second.sweep, "by default"
    blocking = f"{settings}\n# Blocking Enabled: wait for completion and barrier after each collective \n{rest}"
    first, second = parsed(f"{settings}\n{rest}{blocking}")
    assert set(second.sweep.items()) - set(first.sweep.items()) == {("blocking", 1)}


def test_buffers_in_a_hosts_memory_are_no_gpus() -> None:
    title = "# OSU MPI-CUDA Bandwidth Test v7.2\n# Send Buffer on {} and Receive Buffer on {}\n"
    rows = "# Size      Bandwidth (MB/s)\n1048576             24510.11\n4194304             24610.22\n"
    device, host = "DEVICE (D)", "HOST (H)"
    pairs = [(host, host), (device, device), (host, device), (device, host), ("MANAGED (M)", "MANAGED (M)")]
    machines = [parsed(title.format(*pair) + rows)[0].machine for pair in pairs]
    assert [machine.platform for machine in machines] == ["cpu", *["gpu"] * 4]
    assert machines[1].name == "2 x unknown GPU"
    assert "from host to device memory" in machines[2].name
    assert len({machine.name for machine in machines[:4]}) == 4
    assert "assumed to be" not in said(title.format(host, host) + rows)


def test_a_time_with_a_decimal_comma_is_not_a_thousand_times_as_long() -> None:
    head = "# OSU MPI Allreduce Latency Test v7.3\n# Size       Avg Latency(us)\n"
    text = f"{head}4    17,250\n8    18,500\n1,024   20.250\n"
    assert [(nbytes, time) for _, _, nbytes, _, time in rows_of(text, 8)] == [(1024, 20.25)]
    assert said(text, 8).count("an incomplete row") == 2


def test_a_pair_of_gpus_without_a_rate_is_told() -> None:
    text = (DATA / "nvbandwidth_v0_8.json").read_text()
    whole = rows_of(text)
    for word, names in (("0.00", True), ("-1.0", True), ("nan", True), ("N/A", False)):
        (test,) = parsed(text.replace('"395.103"', f'"{word}"'))
        assert len(test.results) == len(whole) - names, word
        assert names == any(f"no rate of GPU 1 to GPU 0 ('{word}')" in reason for reason in test.left_out), word
        assert names or "1 have no rate" in str(reported([test])[0].note)
    torn = text.replace('"395.103",', "", 1)
    assert len(rows_of(torn)) == len(whole) - 1
    assert "its matrix is incomplete" in said(torn)
    failed = text.replace('"Passed"', '"Failed"')
    assert not rows_of(failed)
    assert "it did not pass: device_to_device_memcpy_read_ce, Failed" in said(failed)
