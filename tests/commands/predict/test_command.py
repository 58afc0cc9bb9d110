"""A sweep on a described system: the same table, run file and plots, and nothing runs."""

import json
import re
import subprocess
import sys
from pathlib import Path

from collbench.algorithms import choose
from collbench.cli.options import made
from collbench.cli.results_table import EXTRAS
from collbench.commands.predict.command import command as predict
from collbench.commands.sweep.command import command as sweep
from collbench.requests.declared import declared
from collbench.requests.sweeps import PredictRequest, SweepRequest, predicted_sweep
from collbench.results import Prediction, Skipped
from collbench.runfile.store import Run, read
from collbench.topology import files
from tests.conftest import Command

ON = ("sweep", "--on", "dgx-h100", "--no-plot", "--out", "out")


def predictions(run: Run) -> list[Prediction]:
    found = [result for result in run.results if isinstance(result, Prediction)]
    assert found
    return found


def test_a_predicted_sweep_leaves_what_a_measured_one_leaves(here: Command, tmp_path: Path) -> None:
    done = here("sweep", "--on", "dgx-h100", "-b", "8", "-e", "16M", "-f", "512")
    assert done.returncode == 0, done.stderr
    for name in choose("all", "gpu"):
        assert re.search(rf"^ +8 B  {name} +(\d.* predicted|skipped: .+)", done.stdout, re.MULTILINE), name
    assert re.search(r"^ +8 B  nccl .* \w+/\w+ +predicted", done.stdout, re.MULTILINE)
    assert "likely fastest: " in done.stdout
    (folder,) = (tmp_path / "results" / "runs").iterdir()
    assert "dgx-h100" in folder.name
    assert {path.name for path in folder.iterdir()} == {"run.jsonl", "bandwidth.png", "latency.png"}
    assert str(folder.relative_to(tmp_path)) in done.stdout
    run = read(folder)
    assert run.complete
    assert all(isinstance(result, Prediction | Skipped) for result in run.results)
    assert {row.platform for row in run.results} == {"model"}
    assert done.stdout.count("  predicted") == len(predictions(run))
    assert all(prediction.low <= prediction.seconds <= prediction.high for prediction in predictions(run))
    assert {prediction.case.nbytes for prediction in predictions(run)} == {8, 4096, 2**21}


def test_ranks_are_placed_as_they_were_asked_for() -> None:
    for words, place in (
        ("--nodes 10 --ranks-per-node 4 --ranks 40", (10, 4)),
        ("--ranks 40 --ranks-per-node 2", (20, 2)),
        ("--ranks-per-node 1 --nodes 3", (3, 1)),
        ("--ranks-per-node 4", (1, 4)),
        ("--nodes 5 --ranks 40", (5, 8)),
        ("--ranks 4", (1, 4)),
        ("--nodes 2", (2, 8)),
    ):
        options = predict.make_context("predict", ["dgx-h100", *words.split()]).params
        system, asked = predicted_sweep(files.load("dgx-h100"), made(SweepRequest, options))
        assert system.nics
        assert (system.nodes, system.gpus, system.nics.per_node) == (*place, place[1]), words
        assert asked.ranks == place[0] * place[1], words


def test_options_of_measuring_are_named_and_change_nothing(here: Command, tmp_path: Path) -> None:
    few = ("--impl", "nccl", "-e", "1K")
    plain = here(*ON, *few)
    noted = here(*ON[:-1], "noted", *few, "-n", "20", "-w", "5", "--spin", "busy")
    (sentence,) = re.findall(r"without effect on a described system: (.*)", noted.stderr)
    assert {"--iters", "--warmup_iters", "--spin"} <= set(re.findall(r"--\w+", sentence))
    assert "without effect" not in plain.stderr
    assert read(tmp_path / "out").results == read(tmp_path / "noted").results
    mine, theirs = ({param.name for param in command.params} for command in (sweep, predict))
    measuring = {*declared(SweepRequest)} - {*declared(PredictRequest), "on", "each", "also"}
    measuring |= {"ab", *EXTRAS}
    assert mine >= measuring
    assert theirs >= mine - measuring - {"resume"}  # with which nothing else goes
    assert not theirs & measuring


def test_the_first_line_says_what_a_what_if_changes(here: Command, tmp_path: Path) -> None:
    few = ("dgx-h100", "--nodes", "4", "-b", "1M", "-e", "1G", "-f", "1024", "--no-plot", "--out", "out")
    done = here("predict", *few, "--what-if", "nic.rate=25")
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"(?m)^ +(\d \w+)  nccl +([\d.]+ [um]s) +([\d.]+ [um]s) +([\d.]+x)  ", done.stdout)
    _, (size, before, after, most) = rows
    answer = done.stdout.splitlines()[2]
    assert answer.startswith(f"answer: with nic.rate=25 operations should take {rows[0][3]} .. {most} as long; ")
    assert answer.endswith(f"allreduce of {size} by nccl, {before} -> {after}")
    found = json.loads(here("predict", *few[:-1], "again", "--what-if", "nic.rate=25", "--json", "-").stdout)
    assert f"answer: {found['answer']}" == answer
    header = read(tmp_path / "again").header.topology
    assert header.what_ifs == ("nic.rate=25",)
    assert header.name.endswith("4 nodes of 8 GPUs, what if nic.rate=25")
    assert len(found["as_it_is"]) == len(found["results"])
    assert all(old["seconds"] < new["seconds"] for old, new in zip(found["as_it_is"], found["results"], strict=True))
    small = ("dgx-h100", "--nodes", "4", "-b", "8", "-e", "64", "--no-plot", "--out", "none")
    done = here("predict", *small, "--what-if", "nic.rate=25")
    assert "\nanswer: nic.rate=25 changes none of these times\n" in done.stdout
    done = here("predict", "dgx-h100,dgx-a100", "--nodes", "2", "-b", "8", "-e", "64", "--what-if", "nic.rate=20")
    assert "\nanswer: with nic.rate=20 on all, " in done.stdout


SPY = """
import sys
started = []
sys.addaudithook(lambda event, _: started.append(event) if event in {
    "subprocess.Popen", "os.fork", "os.posix_spawn", "os.exec", "socket.connect", "socket.bind"} else None)
from collbench.cli.group import group
group.main(sys.argv[1:], standalone_mode=False)
heavy = {"mpi4py", "cupy", "pynvml", "matplotlib", "jinja2", "scipy"} & set(sys.modules)
print(*sorted(heavy), *started, file=sys.stderr)
"""


def test_nothing_is_started_and_nothing_heavy_imported(tmp_path: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", SPY, *ON]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == ""
    assert "predicted" in done.stdout


def test_under_a_launcher_one_process_speaks(here: Command, tmp_path: Path) -> None:
    what_if = ("predict", "dgx-h100", "--nodes", "40", "--what-if", "ecmp", "--no-plot", "-e", "8")
    several = ("predict", "dgx-h100,ethernet-100g-tcp", "-e", "8")
    for words in ((*ON, "-e", "8"), what_if, several):
        quiet = here(*words, PMI_RANK="1", PMI_SIZE="2")
        assert (quiet.returncode, quiet.stdout) == (0, ""), quiet.stderr
        assert list(tmp_path.iterdir()) == []
    assert "predicted" in here(*ON, "-e", "8", PMI_RANK="0", PMI_SIZE="2").stdout
