"""Whole commands on made-up GPUs, in processes of their own: what they say, and what their run files hold."""

import re
import shutil
from pathlib import Path

from collbench import __version__
from collbench.analysis.machine import discovered
from collbench.results import Failed
from collbench.runfile.store import read
from collbench.topology.discovered import LinkKind, Topology
from tools.stand_in.simulate import build_extension
from tools.stand_in.whole_commands import on_gpus

SWEEP = ("sweep", "--impl", "nccl", "-b", "64", "-e", "64", "-n", "2", "--no-plot", "--out", "out")
OPERATION, FILE = "operation", "NCCL_DEBUG_FILE"  # in which NCCL hangs; the variable that says where it prints


def joined(folder: Path) -> Topology:
    topology = discovered(read(folder))
    assert topology
    return topology


def test_the_header_of_a_sweep_says_what_joins_the_gpus(tmp_path: Path) -> None:
    done = on_gpus(tmp_path, *SWEEP, devices=2)
    assert done.returncode == 0, done.stderr
    topology = joined(tmp_path / "out")
    assert [(link.kind, link.p2p) for link in topology.links] == [(LinkKind.PCIE, "yes")]
    assert [(gpu.bus_id, gpu.capability) for gpu in topology.gpus] == [("0000:00:00.0", "9.0"), ("0000:01:00.0", "9.0")]


def test_without_nvml_the_header_has_what_cuda_knows_and_the_reason(tmp_path: Path) -> None:
    done = on_gpus(tmp_path, *SWEEP, devices=2, nvml="missing")
    assert done.returncode == 0, done.stderr
    topology = joined(tmp_path / "out")
    assert not topology.links
    assert [gpu.uuid for gpu in topology.gpus] == ["01" * 16, "02" * 16]
    assert topology.unseen.startswith("links and slots of the GPUs are not known: NVML cannot be used (")
    assert "pip install nvidia-ml-py" in topology.unseen
    assert f"note: {topology.unseen}" in done.stderr.splitlines()


def test_what_nccl_prints_is_kept_and_named_where_it_hangs(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    ours = [tmp_path / "out" / name for name in ("nccl-debug-2.log", "nccl-debug-3.log")]
    for variables, kept in (({}, ours), ({FILE: str(theirs)}, [theirs, theirs])):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "nccl-debug.log").symlink_to(tmp_path / "elsewhere")  # which no log is written through
        words = [*SWEEP, "-e", "128", "-f", "2", "--timeout", "1"]  # two sizes, so that ranks start twice
        done = on_gpus(tmp_path, *words, variables={"NCCL_DEBUG": "INFO"} | variables, devices=2, nccl_hangs=OPERATION)
        assert done.returncode == 1, done.stderr
        failed = [row.reason for row in read(tmp_path / "out").results if isinstance(row, Failed)]
        for reason, file in zip(failed, kept, strict=True):
            assert reason.endswith(file.name)
            assert file.read_text().count("made-up NCCL INFO") == 1, file
    assert not (tmp_path / "elsewhere").exists()
    words[words.index("nccl")] = "ring-flags"
    shutil.rmtree(tmp_path / "out")
    done = on_gpus(tmp_path, *words, variables={"NCCL_DEBUG": "INFO"}, devices=2, dead=[1])
    assert "nccl-debug" not in done.stdout


def test_programs_of_nccl_tests_measure_the_paths_that_their_options_mean(tmp_path: Path) -> None:
    simulation = {"extension": str(build_extension(tmp_path / "nccl"))}
    words = ("all_reduce_perf", "-b", "64", "-e", "64", "-g", "2", "-n", "2", "--out", "out")
    for options, row in (("-R 1", "nccl@registered"), ("-R 2 -x 2", "nccl@copy-engine")):
        done = on_gpus(tmp_path, *words, *options.split(), devices=2, simulation=simulation)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"# collbench {__version__}: {row} on gpu, 2 ranks")
        assert "has no effect" not in done.stderr
        rows = read(tmp_path / "out").results
        assert {(row.implementation, row.method) for row in rows} == {
            (row, "symm/LL" if "-x" in options else "ring/ll")
        }
        shutil.rmtree(tmp_path / "out")
    done = on_gpus(tmp_path, *words, "-x", "1", devices=2, simulation=simulation)
    assert "choose from -R 0 -x 0, -R 1 -x 0" in done.stderr


def test_a_sweep_shows_what_ran_and_what_it_is_asked_to_show(tmp_path: Path) -> None:
    simulation = {"extension": str(build_extension(tmp_path / "nccl"))}
    words = ("sweep", "-b", "64", "-e", "64", "-n", "2", "--no-plot", "-C", "-M", "--impl")
    alone = on_gpus(tmp_path, *words, "nccl,one-shot", devices=2, simulation=simulation, variables={"COLUMNS": "200"})
    assert re.search(r"64 B  nccl\S* .* ring/ll .* us +0 B ", alone.stdout), alone.stdout
    assert "--impl all,paths" in alone.stdout
    beside = on_gpus(tmp_path, *words, "nccl,paths,one-shot", devices=2, simulation=simulation)
    assert "--impl all,paths" not in beside.stdout
    assert beside.stdout.count("nccl@") >= 4
