"""`collbench diagnose`, the earlier name of `collbench check RUN`: its words, and how it says no."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

import collbench
from collbench.cli.verdicts import SCHEMA
from collbench.commands.check.command import diagnosis as command
from collbench.model.predict import curve
from collbench.results import Failed, Measurement, Mismatch, Note, Prediction, Skipped
from collbench.results.facts import Sharing
from collbench.runfile.store import read
from collbench.topology import files
from collbench.topology.system import System
from tests.commands.conftest import refusal, write_run
from tests.conftest import ROOT, case, measurement, needs_command


def run_file(
    folder: Path,
    system: System,
    header: dict[str, Any] | None = None,
    samples: int = 7,
    slower: Mapping[int, float] | None = None,
    broken: Sequence[Measurement | Failed] = (),
) -> Path:
    """What a machine like this one measures, by the model; a header with nothing else than what is given.

    `slower` has factors by size in bytes; `broken` are rows instead of those of their sizes.
    """
    rows: dict[int, Measurement | Failed] = {}
    for expectation in curve(system, [case(nbytes=2**power, ranks=system.ranks) for power in range(3, 34, 2)]):
        seconds = expectation.seconds * (slower or {}).get(expectation.case.nbytes, 1.0)
        rows[expectation.case.nbytes] = Measurement(expectation.case, "nccl", "gpu", 1, (seconds,) * samples)
    rows |= {result.case.nbytes: result for result in broken}
    return write_run(folder, *rows.values(), **(header or {}))


def diagnose(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


def test_the_first_line_is_that_of_check_and_the_rows_follow(tmp_path: Path) -> None:
    h100 = files.load("dgx-h100")
    good = run_file(tmp_path / "good", h100, samples=1)
    slow = run_file(tmp_path / "slow", replace(h100, nvls=False))
    out = diagnose(good, "--on", "dgx-h100").stdout
    assert out.startswith("collbench: OK allreduce")
    assert len(re.findall(r"(?m) 1\.00x +[\d.]+  as expected$", out)) == 16
    assert "as DGX H100" in out
    answer, *rows = diagnose(slow, "--on", "dgx-h100").stdout.splitlines()
    assert answer == collbench.check(run=slow, on="dgx-h100").line  # type: ignore[union-attr]
    assert any(row.startswith("SLOW: ") for row in rows)
    (reason,) = (row for row in rows if row.startswith("  1. Likely: "))
    first = reason.removeprefix("  1. Likely: ").partition(" (NCCL")[0].partition(".")[0]
    assert answer.partition("; likely: ")[2] == f"{first}, or a ring for all sizes", "which fits the times as well"


def test_a_machine_that_its_links_refute_has_one_percentage(tmp_path: Path) -> None:
    rows = run_file(tmp_path / "run", files.load("dgx-b200").of(2), slower={2**power: 0.3 for power in range(3, 34)})
    out = diagnose(rows, "--on", "dgx-b200").stdout
    assert "\nUNKNOWN: at " in out
    assert len(re.findall(r"(?m)^ .*\d% of their|^UNKNOWN: .*\d% of their", out)) == 1


def test_a_slow_run_names_reason_fix_and_what_was_set(tmp_path: Path) -> None:
    header = {"environment": {"variables": {"NCCL_NVLS_ENABLE": "0"}}}
    slow = run_file(tmp_path / "run", replace(files.load("dgx-h100"), nvls=False), header)
    out = diagnose(slow, "--on", "dgx-h100").stdout
    assert "note: NCCL_NVLS_ENABLE=0 was set" in out
    assert "\nSLOW: " in out
    assert "1. Likely: a ring or tree instead of NVLS" in out
    assert re.search(r"Assuming that, the model misses by 1\.0\dx instead of 1\.\d\dx\.\n", out)
    assert "unset NCCL_NVLS_ENABLE" in out


MIB = 1 << 20
WRONG = Measurement(case(nbytes=2 * MIB, ranks=8), "nccl", "gpu", 1, (1e-4,), mismatch=Mismatch(1, 5, 0, "3", "4", 7))
FAILED = Failed(case(nbytes=8 * MIB, ranks=8), "nccl", "gpu", "rank 1 crashed")


def test_wrong_and_failed_rows_come_first_and_no_such_run_is_as_expected(tmp_path: Path) -> None:
    run = run_file(tmp_path / "run", files.load("dgx-h100"), broken=(WRONG, FAILED))
    found = diagnose(run, "--on", "dgx-h100", "--gate")
    assert found.return_value == 3
    answer, first, *_ = found.stdout.splitlines()
    assert answer.startswith("collbench: WRONG allreduce")
    assert first.startswith("14 of 16 results correct; 2 MiB allreduce nccl: WRONG: rank 1, element 5")
    assert first.endswith("8 MiB allreduce nccl: FAILED: rank 1 crashed")
    assert first in answer
    none = diagnose(write_run(tmp_path / "none", FAILED, status=None), "--gate")
    assert none.return_value == 3
    assert "\n0 of 1 results correct; 8 MiB" in none.stdout


def test_a_size_above_its_band_says_so_and_beyond_its_limit_is_slow_and_named_first(tmp_path: Path) -> None:
    h100, everywhere = files.load("dgx-h100"), [2**power for power in range(3, 34)]
    (size,) = curve(h100, [case(nbytes=2 * MIB, ranks=8)])
    above = 1.1 * size.high / size.seconds
    for slower, status, words, more in (
        ({2 * MIB: above}, 0, "15 as expected, 1 above the band", 1),
        ({2 * MIB: 13.4, 8 * MIB: above}, 3, "SLOW: 1 of 16 sizes: 2 MiB 13.4x slow", 1),
        (dict.fromkeys(everywhere, 1.25) | {1 << 31: 19.0}, 3, "most of all 1 of 16 sizes: 2 GiB 19.0x slow", 10),
    ):
        run = run_file(tmp_path / str(len(list(tmp_path.iterdir()))), h100, slower=slower)
        found = diagnose(run, "--on", "dgx-h100", "--gate")
        assert found.return_value == status
        assert words in found.stdout
        assert found.stdout.count("  SLOW\n") == (status == 3)
        assert found.stdout.count("  above the band\n") == more


def test_the_gate_passes_what_is_ok_and_json_says_all(tmp_path: Path) -> None:
    h100 = files.load("dgx-h100")
    good = run_file(tmp_path / "good", h100, broken=())
    slow = run_file(tmp_path / "slow", replace(h100, nvls=False))
    wrong = run_file(tmp_path / "wrong", h100, broken=(WRONG,))
    for run, word, status in ((good, "OK", 0), (slow, "SLOW", 3), (wrong, "WRONG", 3)):
        found = diagnose(run, "--on", "dgx-h100", "--gate", "--json")
        document = json.loads(found.stdout)
        assert (found.return_value, document["word"], document["schema"]) == (status, word, SCHEMA), run.name
    assert diagnose(slow, "--on", "dgx-h100").return_value == 0
    assert diagnose(good, "--gate").return_value == 4
    (curve_of_it,) = document["curves"]
    assert curve_of_it["word"] == "OK"
    assert [fault["nbytes"] for fault in document["wrong_or_failed"]] == [2 * MIB]
    (low, high), limit = (curve_of_it["sizes"][0][key] for key in ("usual", "limit"))
    assert low < curve_of_it["sizes"][0]["ratio"] < high < limit


def test_a_run_that_is_not_whole_says_so_behind_the_word(tmp_path: Path) -> None:
    h100 = files.load("dgx-h100")
    torn = {"left_out": ["1 row: line 23 is no whole row ('134217728 3')"]}
    for imported, told in ((torn, True), (torn | {"complete": False}, True), ({"complete": False}, False)):
        run = run_file(tmp_path / str(len(list(tmp_path.iterdir()))), h100, {"imported": imported})
        answer, *_ = diagnose(run, "--on", "dgx-h100", "--gate").stdout.splitlines()
        assert ("left out: 1 row: line 23" in answer) == told, imported
    cut_off = tmp_path / "cut.jsonl"
    cut_off.write_text("".join(run.joinpath("run.jsonl").read_text().splitlines(keepends=True)[:-1]))
    assert "note: the run was cut off after " in diagnose(cut_off, "--on", "dgx-h100").stdout


def test_ranks_are_spread_over_nodes_and_a_run_without_a_machine_is_unknown(tmp_path: Path) -> None:
    run = run_file(tmp_path / "run", files.load("dgx-h100").of(2))
    assert "as DGX H100, 2 nodes of 8 GPUs\n" in diagnose(run, "--on", "dgx-h100").stdout
    assert "as DGX H100, 4 nodes of 4 GPUs\n" in diagnose(run, "--on", "dgx-h100", "--nodes", "4").stdout
    assert "the run lists" not in diagnose(run, "--on", "dgx-h100", "--nodes", "4").stdout
    listed = run_file(tmp_path / "listed", files.load("dgx-h100"), {"topology": {"ranks": 8, "nodes": 1}})
    for nodes in (1, 2):
        out = diagnose(listed, "--on", "dgx-h100", "--nodes", nodes).stdout
        assert ("on 1 node, and --nodes says 2" in out) == (nodes == 2)
    out = diagnose(run).stdout
    assert out.startswith("collbench: UNKNOWN ")
    assert "the machine is unknown; name it with --on" in out.splitlines()[0]


def test_a_run_on_a_cpu_is_unknown_but_not_mute() -> None:
    out = diagnose(ROOT / "results" / "cpu-2-ranks").stdout
    assert out.count("UNKNOWN") == 1
    assert "the model knows GPUs only" in out.splitlines()[0]
    assert "fitted by itself: latency" in out


def test_ranks_that_share_a_gpu_are_said_once_to_be_unknown(tmp_path: Path) -> None:
    topology = {"name": "4 ranks sharing 1 x H100", "platform": "gpu", "ranks": 4, "shared": True}
    topology["gpus"] = [{"name": "H100"}]
    rows = []
    for name in ("nccl", "two-shot", "ring-ll"):
        for nbytes in (8, 1024, 2**20):
            row = measurement(name, (1e-5,) * 7, nbytes=nbytes, ranks=4)
            wrong = Mismatch(1, 5, 0, "1.0", "2.0", 7) if (name, nbytes) == ("ring-ll", 8) else None
            rows.append(replace(row, platform="gpu", note=Note(shared=Sharing(4, 1)), mismatch=wrong))
    environment = {"variables": {"NCCL_NVLS_ENABLE": "0"}}
    out = diagnose(write_run(tmp_path / "run", *rows, topology=topology, environment=environment)).stdout
    assert "NCCL_NVLS_ENABLE" not in out, "sharing sets it"
    assert out.count("several ranks share a GPU") == 1
    assert out.count("4 ranks share 1 GPU") == 1
    assert "ring-ll: WRONG: " in out.splitlines()[0]


def test_ranks_without_cores_are_told() -> None:
    out = diagnose(ROOT / "results" / "cpu-4-ranks-busy").stdout
    assert "note: 4 ranks on 2 usable CPUs: they take turns" in out
    assert "note: --spin busy: waiting ranks occupy cores" in out
    assert "remarks on its rows: oversubscribed" in out


def test_errors_are_one_line(tmp_path: Path) -> None:
    needs_command("step")  # rows of steps
    run = run_file(tmp_path / "run", files.load("dgx-h100"))
    assert "there is no file or folder" in refusal(diagnose(tmp_path / "nowhere"))
    assert "unknown system 'dgx-x'" in refusal(diagnose(run, "--on", "dgx-x"))
    alone = tmp_path / "alone.toml"
    alone.write_text('name = "box"\n[gpu]\narch = "sm89"\n[node]\ngpus = 4\nfabric = "pcie"\n')
    assert "no network cards" in refusal(diagnose(run, "--on", alone))
    assert "8 ranks cannot be spread evenly over 3 nodes" in refusal(diagnose(run, "--on", "dgx-h100", "--nodes", "3"))
    for name, rows, told in (
        ("empty", (), "nothing to diagnose"),
        ("predicted", (Prediction(case(), "nccl", 1e-6, 0.9e-6, 1.1e-6),), "predictions only"),
        ("steps", read(ROOT / "results" / "cpu-2-ranks-overlap").results, "steps, traces and training are drawn by"),
        ("skipped", (Skipped(case(), "nvls", "gpu", "no switch"),), "its other rows say why"),
    ):
        assert told in refusal(diagnose(write_run(tmp_path / name, *rows, status=None))), name
