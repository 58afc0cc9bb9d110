"""`collbench diagnose`: its words, and how it says no."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from collbench.cli.diagnose import command
from collbench.model.predict import curve
from collbench.results import Measurement, Prediction, Skipped
from collbench.runfile.header import Header
from collbench.runfile.store import Writer
from collbench.topology import files
from collbench.topology.system import System
from tests.cli.conftest import refusal
from tests.conftest import ROOT, case


def run_file(folder: Path, system: System, header: dict[str, Any], samples: int = 7) -> Path:
    """What a machine like this one measures, by the model; a header with nothing else than what is given."""
    with Writer(folder) as writer:
        writer.header(Header.from_json(header))
        for expectation in curve(system, [case(nbytes=2**power, ranks=system.ranks) for power in range(3, 34, 2)]):
            writer.append(Measurement(expectation.case, "nccl", "gpu", 1, (expectation.seconds,) * samples))
    return folder


def diagnose(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_a_right_run_is_as_expected(tmp_path: Path) -> None:
    """Also a foreign log with one sample a size and no topology, once the machine is named."""
    out = diagnose(run_file(tmp_path / "run", files.load("dgx-h100"), {}, samples=1), "--as", "dgx-h100").stdout
    assert "as DGX H100" in out
    assert "verdict: as expected" in out
    assert "on the wire at 8 GiB" in out
    assert "busbw" in out


def test_a_slow_run_names_reason_fix_and_what_was_set(tmp_path: Path) -> None:
    """NVLS was turned off by the variable in the header."""
    header = {"environment": {"variables": {"NCCL_NVLS_ENABLE": "0"}}}
    slow = run_file(tmp_path / "run", replace(files.load("dgx-h100"), nvls=False), header)
    out = diagnose(slow, "--on", "dgx-h100").stdout
    assert "note: NCCL_NVLS_ENABLE=0 was set" in out
    assert "verdict: slow" in out
    assert "1. a ring or tree instead of NVLS" in out
    assert "unset NCCL_NVLS_ENABLE" in out


def test_ranks_are_spread_over_nodes_and_a_run_without_a_machine_is_unknown(tmp_path: Path) -> None:
    """Sixteen ranks of a DGX are two of them, unless it is said otherwise."""
    run = run_file(tmp_path / "run", files.load("dgx-h100").of(2), {})
    assert "as DGX H100, 2 nodes of 8 GPUs\n" in diagnose(run, "--on", "dgx-h100").stdout
    assert "as DGX H100, 4 nodes of 4 GPUs\n" in diagnose(run, "--on", "dgx-h100", "--nodes", "4").stdout
    out = diagnose(run).stdout
    assert "verdict: unknown: the run file does not say what the machine is; name it with --on" in out


def test_a_run_on_a_cpu_is_unknown_but_not_mute() -> None:
    """Its own curve, its noise, and how it compares with the CPU that the costs were fitted to."""
    out = diagnose(ROOT / "results" / "cpu-2-ranks-epyc").stdout
    assert out.count("verdict: unknown: the cpu platform has no GPUs") == 10
    assert "by its own curve: latency" in out
    assert "about as fast as the CPU that the costs of hand-written implementations were fitted to" in out


def test_ranks_without_cores_are_told() -> None:
    """Whose run has shown what --spin busy does then."""
    out = diagnose(ROOT / "results" / "cpu-4-ranks-busy").stdout
    assert "note: 4 ranks on 2 usable CPUs: they take turns" in out
    assert "note: --spin busy: waiting ranks keep their cores" in out
    assert "the rows say: oversubscribed" in out


def test_errors_are_one_line(tmp_path: Path) -> None:
    """No run, an unknown system, ranks that the system cannot have, nothing measured."""
    run = run_file(tmp_path / "run", files.load("dgx-h100"), {})
    assert "cannot read" in refusal(diagnose(tmp_path / "nowhere"))
    assert "unknown system 'dgx-x'" in refusal(diagnose(run, "--on", "dgx-x"))
    alone = tmp_path / "alone.toml"
    alone.write_text('name = "box"\n[gpu]\narch = "sm89"\n[node]\ngpus = 4\nfabric = "pcie"\n')
    assert "no network cards" in refusal(diagnose(run, "--on", alone))
    assert "8 ranks cannot be spread evenly over 3 nodes" in refusal(diagnose(run, "--on", "dgx-h100", "--nodes", "3"))
    for name, rows, told in (
        ("empty", (), "nothing to diagnose"),
        ("predicted", (Prediction(case(), "nccl", 1e-6, 0.9e-6, 1.1e-6),), "predictions only"),
        ("skipped", (Skipped(case(), "nvls", "gpu", "no switch"),), "its other rows say why"),
    ):
        with Writer(tmp_path / name) as writer:
            writer.header(Header())
            for row in rows:
                writer.append(row)
        assert told in refusal(diagnose(tmp_path / name)), name
