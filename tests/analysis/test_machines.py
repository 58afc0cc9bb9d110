"""The machine decides what a node is, and whether ranks share a GPU: of logs of nccl-tests, and of measured runs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import collbench
from collbench.analysis.judgement import Word
from collbench.analysis.machine import RunFacts, candidates, machine, stated_nodes
from collbench.analysis.roofline import roofline
from collbench.commands.check.judge import CheckResult
from collbench.commands.formats.nccl_tests_write import devices
from collbench.commands.report.analysed import SafeRun, analysed
from collbench.errors import UsageError
from collbench.results import Observed
from collbench.runfile.schema import Header
from collbench.runfile.store import Run
from collbench.topology import files
from tests.commands.formats.goldens import DATA, golden_tests, parsed, run_of
from tests.conftest import ROOT

SHARED = ROOT / "results" / "nvidia-h100-1-gpu-4-ranks"
GIB = 2**30
HALF_SPEED = {GIB // 4: 280, GIB // 2: 320, GIB: 350, 2 * GIB: 380, 4 * GIB: 405, 8 * GIB: 421}  # of two trays, GB/s
HEALTHY = {GIB // 4: 560, GIB // 2: 640, GIB: 700, 2 * GIB: 760, 4 * GIB: 830, 8 * GIB: 877}  # of a rack
COLUMNS = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"


def device(rank: int, host: str, number: int, bus_id: str, gpu: str) -> str:
    return f"#  Rank {rank:2d} Group  0 Pid {rank + 100} on {host:>10} device {number:2d} [{bus_id}] {gpu}\n"


def log(gpu: str, *hosts: int, speeds: dict[int, float] | None = None, kept: Sequence[int] = ()) -> str:
    """A log of all-reduce by hosts with so many ranks each; `kept` are the ranks that it lists, by default all."""
    listed = []
    for host, count in enumerate(hosts):
        for number in range(count):
            rank = len(listed)
            listed.append(device(rank, f"node{host}", number, f"0000:{16 * number + 5:02x}:00", gpu))
    lines = [listed[rank] for rank in kept or range(len(listed))]
    return "".join(["# nThread 1 nGpus 1\n", *lines, *rows(len(listed), speeds or HEALTHY)])


def rows(ranks: int, speeds: dict[int, float]) -> list[str]:
    lines = [COLUMNS]
    for size, busbw in speeds.items():
        algbw = busbw / (2 * (ranks - 1) / ranks)
        place = f"{size / algbw / 1e3:.2f} {algbw:.2f} {busbw:.2f} 0"
        lines.append(f"{size} {size // 4} float sum -1 {place} {place}\n")
    return [*lines, "# Out of bounds values : 0 OK\n"]


def imported(text: str, ranks: int | None = None) -> Run:
    return run_of(parsed(text, ranks))


def checked(run: Run | Path, **options: object) -> CheckResult:
    result = collbench.check(run=run, **options)  # type: ignore[arg-type]
    assert result
    return result


def hint(run: Run) -> str:
    with pytest.raises(UsageError) as error:
        machine(run, None)
    return str(error.value)


def followed(run: Run) -> CheckResult:
    words = hint(run).partition("--on ")[2].replace(",", " ").replace(";", " ").split()
    nodes = int(words[2]) if words[1:2] == ["--nodes"] else None
    return checked(run, on=words[0], nodes=nodes)


def test_two_trays_of_a_rack_at_half_speed_are_slow_as_the_hint_says() -> None:
    for gpu, system in (("NVIDIA GB200", "gb200-nvl72"), ("NVIDIA GB300", "gb300-nvl72")):
        run = imported(log(gpu, 4, 4, speeds=HALF_SPEED))
        assert "nodes" not in hint(run), gpu
        for result in (checked(run, on=system), followed(run)):
            assert (result.word, result.nodes) == (Word.SLOW, 1), gpu
        (curve, _) = checked(run, on=system).curves
        assert 1.8 < curve.telling.off < 2.4
        assert checked(run, on=system, nodes=2).nodes == 2, "as the user says"
        assert "2 nodes" not in run.header.topology.name


def test_a_healthy_rack_is_as_expected_and_trays_are_counted_in_racks() -> None:
    for hosts, each, racks in ((1, 4, 1), (8, 2, 1), (18, 4, 1), (20, 4, 2), (36, 4, 2)):
        run = imported(log("NVIDIA GB200", *[each] * hosts))
        ((place,), _) = candidates(run, "gb200-nvl72", None, RunFacts({}))
        assert place.nodes == racks, hosts
        assert place.part(hosts * each).gpus == hosts * each // racks
        assert ("--nodes" in hint(run)) is (racks > 1), hosts
    assert followed(imported(log("NVIDIA GB200", *[4] * 18))).word is Word.OK


def test_racks_are_more_where_the_log_names_their_fabrics() -> None:
    line = "host{0}:7:7 [0] NCCL INFO MNNVL busId 0x801000 fabric UUID {1} cliqueId 0x{2} state 3 healthMask 0xaa\n"
    for fabrics, racks in (
        (("a4.7d 1", "a4.7d 1"), 1),
        (("a4.7d 1", "b5.7d 1"), 2),
        (("a4.7d 1", "a4.7d 2"), 2),  # two partitions of a rack
        (("0.0 0", "0.0 0"), 1),
    ):
        told = [line.format(at, *fabric.split()) for at, fabric in enumerate(fabrics)]
        run = imported("".join(told) + log("NVIDIA GB200", 4, 4))
        assert stated_nodes(files.load("gb200-nvl72"), run) == racks, fabrics
        assert stated_nodes(files.load("gh200-quad"), run) is None, "which has no trays"


def test_where_a_host_is_a_node_hosts_are_counted() -> None:
    for gpu, hosts, each, named, first in (
        ("NVIDIA H100 80GB HBM3", 2, 8, "dgx-h100", ""),
        ("NVIDIA H100 80GB HBM3", 4, 4, "dgx-h100", ""),
        ("NVIDIA GH200 120GB", 4, 4, "gh200-quad", "alps-gh200"),
        ("NVIDIA A100-SXM4-40GB", 4, 4, "perlmutter", "hgx-a100-4"),
        ("NVIDIA B200", 2, 8, "dgx-b200", ""),
    ):
        run = imported(log(gpu, *[each] * hosts))
        assert run.header.topology.name.endswith(f" on {hosts} nodes")
        assert f"--nodes {hosts}" in hint(run), gpu
        assert f"--on {first}" in hint(run), gpu
        assert named in hint(run), gpu
        assert (checked(run, on=named).nodes, followed(run).nodes) == (hosts, hosts)
        assert "trimmed" not in hint(run)


def test_all_that_holds_times_against_a_system_takes_the_nodes_of_the_log() -> None:
    run = imported(log("NVIDIA H100 80GB HBM3", 4, 4))
    (row, *_) = (result for result in run.results if isinstance(result, Observed))
    assert "network cards" in str(roofline(run, row.case, "dgx-h100"))
    curve, *_ = collbench.check(run=run, on="dgx-h100").curves
    assert curve.against == "DGX H100, 2 nodes of 4 GPUs"
    (verdict, _) = analysed(SafeRun("log", run, run.results), "dgx-h100").verdicts
    assert verdict.word is curve.word
    measured = replace(run, header=Header.from_json({"topology": {"platform": "gpu", "ranks": 8, "nodes": 2}}))
    assert stated_nodes(files.load("dgx-h100"), measured) == 2


def test_of_a_trimmed_list_the_number_of_nodes_is_not_known_and_that_is_said() -> None:
    gpu = "NVIDIA H100 80GB HBM3"
    for kept in ((0, 7, 8, 15), (15,), tuple(range(8))):
        run = imported(log(gpu, 8, 8, kept=kept), 16)
        assert "nodes" not in run.header.topology.to_json(), kept
        assert "incomplete" in hint(run), kept
        assert "give --nodes N" in hint(run), kept
        assert "dgx-h100" in hint(run), kept
        assert "--nodes 2" not in hint(run), kept
        assert checked(run, on="dgx-h100").line.count("incomplete") == 1, kept
        assert "incomplete" in collbench.check(run=run, on="dgx-h100").line, kept
        notes = analysed(SafeRun("log", run, run.results), "dgx-h100").notes
        assert any("incomplete" in note for note in notes), kept
        stated = checked(run, on="dgx-h100", nodes=4)
        assert (stated.nodes, stated.hint) == (4, ""), kept
        assert checked(run).nodes == 0, kept
    rack = imported(log("NVIDIA GB200", *[4] * 18, kept=(0, 71)))
    assert "--nodes" not in hint(rack), "one holds them all"


def two(bus_ids: str, gpus: str = "NVIDIA H100", numbers: str = "00", hosts: str = "aa") -> Run:
    """A log of two ranks: the bus id of each, and the rest likewise."""
    names = gpus.split(", ") * 2
    listed = [
        device(rank, hosts[rank], int(numbers[rank]), bus_id, names[rank])
        for rank, bus_id in enumerate(bus_ids.split())
    ]
    return imported("".join([*listed, *rows(2, {GIB: 200.0, 2 * GIB: 200.0, 4 * GIB: 200.0})]))


def test_ranks_that_list_the_same_bus_id_share_a_gpu() -> None:
    for run in (two("0000:05:00 0000:05:00"), two("0000:05:00 0000:05:00", numbers="01"), two("0x05 0x05")):
        topology = run.header.topology
        assert topology.shared
        assert topology.name == "2 ranks sharing 1 x NVIDIA H100"
        for row in run.results:
            assert row.note.shared
            assert str(row.note.shared) == "2 ranks share 1 GPU"


def test_ranks_have_a_gpu_each_where_the_bus_id_does_not_say_otherwise() -> None:
    for run in (
        two("0000:05:00 0000:06:00"),
        two("0000:05:00 0000:05:00", hosts="ab"),
        two("0000:05:00 0000:05:00", gpus="NVIDIA H100 80GB HBM3 MIG 1g.10gb"),
        two("0x01 0x01", gpus="NVIDIA GH200 120GB"),
        two("0x00 0x00"),
        two("0x04 0x04", numbers="01"),
        two("0000:00:00 0000:00:00"),
        two("0000:xx:00 0000:xx:00"),
    ):
        assert not run.header.topology.shared
        assert run.header.topology.name.startswith("2 x ")
        assert not any(row.note.shared for row in run.results)


def test_ranks_that_share_a_gpu_are_held_against_no_system() -> None:
    measured = collbench.read(SHARED)
    library = replace(measured, results=tuple(row for row in measured.results if row.implementation == "nccl"))
    for run in (library, two("0000:05:00 0000:05:00")):
        for on in ("dgx-h100", None):
            result = checked(run, on=on)
            assert (result.word, result.compared) == (Word.UNKNOWN, "")
            assert {curve.remark.count("--reference RUN") for curve in result.curves} <= {0, 1}
            assert "--reference RUN" in result.curves[0].remark
            assert "--reference RUN" in collbench.check(run=run, on=on).line
            found = analysed(SafeRun("run", run, run.results), on)
            assert found.system is None
            assert "--reference RUN" in found.why_not
            with pytest.raises(UsageError, match="share a GPU"):
                roofline(run, run.results[0].case, on)
    with pytest.raises(UsageError, match="unknown system"):
        checked(SHARED, on="dgx-x")


def test_ranks_that_share_a_gpu_are_held_against_a_run_of_as_many_gpus(tmp_path: Path) -> None:
    assert checked(SHARED, reference=SHARED).word is Word.OK
    texts = {"shared": ("0000:05:00", "0000:05:00"), "apart": ("0000:05:00", "0000:06:00")}
    for name, bus_ids in texts.items():
        listed = [device(rank, "a", 0, bus_id, "NVIDIA H100") for rank, bus_id in enumerate(bus_ids)]
        (tmp_path / f"{name}.log").write_text("".join([*listed, *rows(2, HEALTHY)]))
        collbench.import_(tmp_path / f"{name}.log", out=tmp_path / name)
    for name in texts:
        for reference in texts:
            result = checked(tmp_path / name, reference=tmp_path / reference)
            assert result.word is (Word.OK if name == reference else Word.UNKNOWN), (name, reference)


def test_slices_of_a_gpu_are_held_against_no_system_either() -> None:
    gpus = [{"name": "H100 MIG 1g.10gb", "uuid": f"MIG-{number}"} for number in range(2)]
    header = Header.from_json({"topology": {"platform": "gpu", "ranks": 2, "gpus": gpus}})
    run = replace(two("0000:05:00 0000:06:00"), header=header)
    result = checked(run, on="dgx-h100")
    assert result.word is Word.UNKNOWN
    assert "MIG slices" in result.curves[0].remark


def spread_over(*ranks: int, gpu: str = "NVIDIA H100 80GB HBM3", speeds: dict[int, float] | None = None) -> Run:
    return imported(log(gpu, *ranks, speeds=speeds or HALF_SPEED))


@pytest.mark.parametrize("hosts", [(8, 4, 4), (4, 4, 8), (7, 1), (1, 7), (8, 3), (8, 1), (8, 8, 6, 2), (2, 1)])
def test_hosts_of_unlike_numbers_of_ranks_are_held_against_no_system(hosts: tuple[int, ...]) -> None:
    for run in (spread_over(*hosts), spread_over(*hosts, speeds=dict.fromkeys(HALF_SPEED, 5.0))):
        for result in (checked(run, on="dgx-h100"), checked(run, on="dgx-h100", nodes=1), checked(run)):
            assert (result.word, result.compared) == (Word.UNKNOWN, "")
            assert f"{len(hosts)} hosts have {min(hosts)} to {max(hosts)} ranks each" in result.line
        assert "--nodes" not in hint(run)
        assert "--reference RUN" in hint(run)
        assert {curve.against for curve in collbench.check(run=run, on="dgx-h100").curves} == {""}
        assert analysed(SafeRun("log", run, run.results), "dgx-h100").system is None
    rack = spread_over(4, 3, gpu="NVIDIA GB200")
    assert checked(rack, on="gb200-nvl72").compared.endswith("1 rack of 7 GPUs"), "trays are no nodes"


def test_ranks_that_a_system_has_no_room_for_are_held_against_none(tmp_path: Path) -> None:
    alone = tmp_path / "alone.toml"
    alone.write_text(files.to_toml(replace(files.load("dgx-h100"), nics=None, tiers=())))
    for run, on, nodes, told in (
        (spread_over(16), "dgx-h100", 2, "16 ranks cannot be spread evenly over 1 node of"),
        (
            spread_over(16, gpu="NVIDIA A100-SXM4-80GB"),
            "dgx-a100",
            2,
            "16 ranks cannot be spread evenly over 1 node of",
        ),
        (
            spread_over(8, 8, gpu="NVIDIA A100-SXM4-80GB"),
            "hgx-a100-4",
            4,
            "16 ranks cannot be spread evenly over 2 nodes",
        ),
        (spread_over(2, 2), str(alone), 1, "no network cards"),
    ):
        result = checked(run, on=on)
        assert (result.word, result.compared) == (Word.UNKNOWN, ""), told
        assert told in result.line
        assert result.rows == len(run.results)
        assert checked(run, on=on, nodes=nodes).compared, "as the user says"
        assert analysed(SafeRun("log", run, run.results), on).system is None
    counted = {"platform": "gpu", "ranks": 11, "nodes": 2, "name": "11 x NVIDIA H100 on 2 nodes"}
    odd = replace(spread_over(8, 3), header=Header.from_json({"topology": counted}))
    assert "11 ranks cannot be spread evenly over 2" in checked(odd, on="dgx-h100").line
    assert "--nodes" not in hint(odd)


def test_a_log_without_a_list_of_ranks_says_where_they_are_taken_to_be() -> None:
    for ranks, on, where in (
        (16, "dgx-h100", "2 nodes of 8 GPUs"),
        (8, "dgx-h100", "1 node of 8 GPUs"),
        (16, "gb200-nvl72", "1 rack of 16 GPUs"),
    ):
        for speeds in (HALF_SPEED, dict.fromkeys(HALF_SPEED, 40.0)):
            bare = imported("".join(["# nThread 1 nGpus 1\n", *rows(ranks, speeds)]), ranks)
            result = checked(bare, on=on)
            assert result.compared.endswith(where)
            assert f"{where} are assumed" in result.line
            assert "lists no ranks" in result.remarks[0]
    assert "lists no ranks" not in checked(bare, on="dgx-h100", nodes=2).line
    trimmed = imported(log("NVIDIA H100", 8, 8, kept=(0, 15)), 16)
    for listed in (spread_over(8), spread_over(8, 8), trimmed):
        result = checked(listed, on="dgx-h100")
        assert "lists no ranks" not in result.line
        assert ("list of ranks is incomplete" in result.line) is (listed is trimmed)
        assert ("without it, any of 2, 4, 8 and 16 nodes are assumed" in result.line) is (listed is trimmed)
    assert not checked(trimmed, on="dgx-h100", nodes=2).remarks


def test_the_part_of_a_system_that_a_run_is_held_against_is_named() -> None:
    trays = imported(log("NVIDIA GB200", 4, 4, speeds=HALF_SPEED))
    assert checked(trays, on="gb200-nvl72").compared == "the model of GB200 NVL72, 1 rack of 8 GPUs"
    two_racks = checked(trays, on="gb200-nvl72", nodes=2)
    assert two_racks.compared == "the model of GB200 NVL72, 2 racks of 4 GPUs"
    assert "--nodes counts racks: assumed to be on 2 racks of 4 GPUs" in two_racks.line
    assert checked(spread_over(8, 8), on="dgx-h100").compared == "the model of DGX H100, 2 nodes of 8 GPUs"


def test_gpus_that_a_system_does_not_have_are_told() -> None:
    for gpu, on, told in (
        ("NVIDIA H100 80GB HBM3", "dgx-a100", True),
        ("NVIDIA A100-SXM4-80GB", "dgx-h100", True),
        ("NVIDIA H100 80GB HBM3", "h100-nvl", True),
        ("NVIDIA H100 80GB HBM3", "dgx-h100", False),
        ("NVIDIA A100-SXM4-40GB", "dgx-a100", False),
        ("NVIDIA H200", "hgx-h200", False),
        ("NVIDIA B200", "dgx-b200", False),
        ("NVIDIA GB200", "gb200-nvl72", False),
    ):
        line = checked(spread_over(4, gpu=gpu), on=on).line
        assert (f"the run names {gpu}, and" in line) is told, (gpu, on)
    measured = Header.from_json({"topology": {"platform": "gpu", "ranks": 4, "gpus": [{"name": "NVIDIA L40S"}] * 4}})
    run = replace(spread_over(4), header=measured)
    assert "NVIDIA L40S" in checked(run, on="dgx-h100").line


def test_one_rank_alone_is_not_judged() -> None:
    line = "{0} {1} float sum 0 {2} {3} {3} 0 0.19 {4:.2f} {4:.2f} 0\n"
    sizes = [(GIB >> power, (GIB >> power) / 267e3) for power in (4, 2, 0)]
    made = [line.format(size, size // 4, f"{us:.2f}", "267.00", size / 190) for size, us in sizes]
    text = "# Collective test starting: reduce_perf\n" + device(0, "a", 0, "0000:05:00", "NVIDIA GeForce RTX 2080 Ti")
    result = checked(imported(text + COLUMNS + "".join(made), 1), on="pcie3-2080ti")
    assert {curve.sizes[0].row.case.in_place for curve in result.curves} == {True, False}
    for each in (result, *result.curves, *result.sizes):
        assert each.word is Word.UNKNOWN
    assert "one rank alone" in result.line
    assert "2027125" not in result.line


def test_a_list_in_json_is_whole_though_a_process_has_one_entry_for_several_ranks() -> None:
    (test,) = golden_tests("json_v1_misspelled.json")
    assert (test.machine.ranks, test.machine.nodes, test.machine.listed) == (8, 2, 0)
    text = (DATA / "json_v1_misspelled.json").read_text()
    text = text.replace('"nthreads": 2, "ngpus": 2', '"nthreads": 1, "ngpus": 1').replace('"     5"', '"0"')
    for hosts, shared in (("n2", False), ("n1", True)):
        (test,) = parsed(text.replace('"n2"', f'"{hosts}"'))
        assert (test.machine.ranks, bool(test.machine.shared)) == (2, shared)


def test_ranks_that_share_gpus_share_them_still_when_they_are_exported() -> None:
    buses = ["05", "05", "16", "16"]
    listed = [device(rank, "a", 0, f"0000:{bus}:00", "NVIDIA H100") for rank, bus in enumerate(buses)]
    header = imported("".join([*listed, *rows(4, HEALTHY)])).header
    assert [entry["device_hex"][5:7] for entry in devices(header, 4)] == buses
