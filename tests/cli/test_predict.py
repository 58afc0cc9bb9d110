"""A sweep on a described system: the same table, run file and plots, and nothing runs."""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from collbench.api.predicting import make_prediction
from collbench.cli.predict import command as predict
from collbench.cli.sweep import MEASURING
from collbench.cli.sweep import command as sweep
from collbench.implementations import choose
from collbench.measurement import Prediction, Skipped
from collbench.model.network.what_if import WHAT_IFS
from collbench.runs.file import Run, read
from collbench.topology import files
from tests.conftest import Command
from tools.readme import BLOCK, README, printed

ON = ("sweep", "--on", "dgx-h100", "--no-plot", "--out", "out")


def predictions(run: Run) -> list[Prediction]:
    """All of a run; it must have some."""
    found = [result for result in run.results if isinstance(result, Prediction)]
    assert found
    return found


def test_a_predicted_sweep_leaves_what_a_measured_one_leaves(here: Command, tmp_path: Path) -> None:
    """Rows of every implementation, marked; a whole run file that says of what system; two pictures; where they are."""
    done = here("sweep", "--on", "dgx-h100", "-b", "8", "-e", "16M", "-f", "512")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(files.load("dgx-h100").title)
    for name in choose("all", "gpu"):
        assert re.search(rf"^ +8 B  {name} +(\d.* predicted|skipped: .+)", done.stdout, re.MULTILINE), name
    assert re.search(r"^ +8 B  nccl .* \w+/\w+ +predicted", done.stdout, re.MULTILINE)
    assert "fastest, allreduce, float, sum, 8 ranks:" in done.stdout
    (folder,) = (tmp_path / "results" / "runs").iterdir()
    assert "dgx-h100" in folder.name
    assert {path.name for path in folder.iterdir()} == {"run.jsonl", "bandwidth.png", "latency.png"}
    assert str(folder.relative_to(tmp_path)) in done.stdout
    run = read(folder)
    assert run.complete
    assert all(isinstance(result, Prediction | Skipped) for result in run.results)
    assert all(prediction.low <= prediction.seconds <= prediction.high for prediction in predictions(run))
    assert {prediction.case.nbytes for prediction in predictions(run)} == {8, 4096, 2**21}


def test_every_row_of_the_table_is_in_the_run_file_and_marked(here: Command, tmp_path: Path) -> None:
    """A reader of either sees that nothing was measured."""
    done = here(*ON, "--op", "all", "-e", "1G", "-f", "64")
    rows = [line for line in done.stdout.splitlines() if re.match(r" +[\d.]+ .?i?B  ", line)]
    run = read(tmp_path / "out")
    assert sum("predicted" in row for row in rows) == len(predictions(run))
    assert all("predicted" in row or "skipped: " in row for row in rows)
    lines = [json.loads(line) for line in (tmp_path / "out" / "run.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in lines} <= {"header", "prediction", "skipped", "end"}
    assert {line["platform"] for line in lines[1:-1]} == {"model"}


def test_the_header_describes_the_system_and_says_that_it_is_a_model(here: Command, tmp_path: Path) -> None:
    """So that a file alone can be understood, and be held against a measured one."""
    here(*ON, "--nodes", "4", "-e", "8")
    header = read(tmp_path / "out").header
    topology = header.topology
    assert topology.name == files.load("dgx-h100").of(4).title
    assert (topology.model, topology.ranks, topology.platform) == (True, 32, "gpu")
    assert topology.system["nodes"] == 4
    assert topology.system["nics"]["transport"] == "ib"
    assert header.sweep.ranks == 32


def test_predict_is_the_same_sweep_for_the_library_alone(here: Command, tmp_path: Path) -> None:
    """One screen, the same numbers."""
    few = ("-b", "64", "-e", "1G", "-f", "16", "--no-plot")
    assert here("sweep", "--on", "dgx-a100", "--nodes", "2", *few, "--out", "a").returncode == 0
    done = here("predict", "dgx-a100", "--nodes", "2", *few, "--out", "b")
    assert done.returncode == 0, done.stderr
    everything, library = predictions(read(tmp_path / "a")), predictions(read(tmp_path / "b"))
    assert library == [row for row in everything if row.implementation == "nccl"]
    assert len(done.stdout.splitlines()) < 20


def test_the_default_sizes_need_no_memory(here: Command, tmp_path: Path) -> None:
    """From 8 B to 8 GiB, and beyond if asked."""
    assert here("predict", "dgx-h100", "--no-plot", "--out", "a").returncode == 0
    sizes = [prediction.case.nbytes for prediction in predictions(read(tmp_path / "a"))]
    assert (sizes[0], sizes[-1], len(sizes)) == (8, 2**33, 16)
    assert here("predict", "dgx-h100", "-b", "1T", "--no-plot", "--out", "b").returncode == 0
    assert predictions(read(tmp_path / "b"))[0].case.nbytes == 2**40


def test_every_preset_can_be_predicted(here: Command, tmp_path: Path) -> None:
    """All of it, by its own number of ranks."""
    for name in files.names():
        done = here("predict", name, "-e", "1G", "-f", "1024", "--no-plot", "--out", name)
        assert done.returncode == 0, done.stderr
        assert {prediction.case.ranks for prediction in predictions(read(tmp_path / name))} == {files.load(name).ranks}


def test_a_file_of_ones_own_is_a_system_too(here: Command, tmp_path: Path) -> None:
    """Named by its path."""
    text = (files.FOLDER / "dgx-h100.toml").read_text()
    (tmp_path / "mine.toml").write_text(text.replace('name = "DGX H100"', 'name = "Under my desk"'))
    done = here("sweep", "--on", "mine.toml", "-e", "8", "--no-plot", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "Under my desk" in read(tmp_path / "out").header.topology.name


@pytest.mark.parametrize(("arguments", "ranks"), [(["--ranks", "4"], 4), (["--nodes", "3"], 24)])
def test_a_part_of_a_system_or_several_nodes(here: Command, tmp_path: Path, arguments: list[str], ranks: int) -> None:
    """Said in title, header and rows."""
    done = here(*ON, "--impl", "nccl", "-e", "8", *arguments)
    assert f"allreduce, float, sum, {ranks} ranks" in done.stdout
    run = read(tmp_path / "out")
    assert {result.case.ranks for result in run.results} == {ranks} == {run.header.topology.ranks}


@pytest.mark.parametrize(
    ("arguments", "place", "cards"),
    [
        (("--nodes", "10", "--ranks-per-node", "4"), (10, 4), 4),
        (("--nodes", "10", "--ranks-per-node", "4", "--ranks", "40"), (10, 4), 4),
        (("--ranks", "40", "--ranks-per-node", "2"), (20, 2), 2),
        (("--ranks-per-node", "1", "--nodes", "3"), (3, 1), 1),
        (("--ranks-per-node", "4"), (1, 4), 4),
        (("--nodes", "5", "--ranks", "40"), (5, 8), 8),
        (("--nodes", "1", "--ranks", "4"), (1, 4), 4),
        (("--nodes", "2"), (2, 8), 8),
    ],
)
def test_ranks_are_placed_as_they_were_asked_for(
    arguments: tuple[str, ...], place: tuple[int, int], cards: int
) -> None:
    """So many nodes, so many GPUs of each, and their share of the network cards."""
    options = predict.make_context("predict", ["dgx-h100", *arguments]).params
    system, asked = make_prediction(files.load("dgx-h100"), options)
    assert system.nics
    assert (system.nodes, system.gpus, system.nics.per_node) == (*place, cards)
    assert asked.ranks == place[0] * place[1]


def test_some_ranks_of_every_node_are_predicted_as_such(here: Command, tmp_path: Path) -> None:
    """Named in title and header; forty ranks on ten nodes are not forty on five."""
    for name, words in {"ten": ("--nodes", "10", "--ranks-per-node", "4"), "five": ("--nodes", "5")}.items():
        done = here("predict", "dgx-h100", *words, "-b", "1M", "-e", "1M", "--no-plot", "--out", name)
        assert done.returncode == 0, done.stderr
        assert "40 ranks" in done.stdout
    ten, five = (read(tmp_path / name) for name in ("ten", "five"))
    assert ten.header.topology.name == "DGX H100, 10 nodes of 4 GPUs"
    assert predictions(ten)[0].seconds != predictions(five)[0].seconds


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["sweep", "--on", "moon"], "unknown --on 'moon'; choose from: auto, gpu, cpu, "),
        (["sweep", "--on", "moon"], "dgx-h100, "),
        (["predict", "moon"], "unknown system 'moon'; choose from: "),
        (["predict", "auto"], "unknown system 'auto'; choose from: "),
        (["predict", "moon.toml"], "cannot read moon.toml"),
        (["sweep", "--on", "cpu", "--nodes", "2"], "--nodes goes with a described system, and --on cpu is none"),
        (["predict", "dgx-h100", "--nodes", "0"], "--nodes 0 is too few"),
        (["predict", "dgx-h100", "--ranks", "0"], "--ranks 0 is too few"),
        (["predict", "dgx-h100", "--ranks", "16"], "--ranks 16 is more than the 8 GPUs of DGX H100; .* --nodes 2"),
        (
            ["predict", "dgx-h100", "--nodes", "10", "--ranks", "40"],
            "80 GPUs of --nodes 10; give --ranks 80 for all, or --nodes 5 for as few, or --ranks-per-node 4 for some",
        ),
        (
            ["sweep", "--on", "dgx-h100", "--nodes", "10", "--ranks", "40"],
            "80 GPUs of --nodes 10; give --ranks 80 for all",
        ),
        (["predict", "dgx-h100,dgx-a100", "--nodes", "10", "--ranks", "40"], "80 GPUs of --nodes 10; give --ranks 80"),
        (["predict", "dgx-h100", "--nodes", "8", "--ranks", "12"], "give --ranks 64 for all$"),
        (
            ["predict", "dgx-h100", "--nodes", "2", "--ranks", "6"],
            "--nodes 1 for as few, or --ranks-per-node 3",
        ),
        (["predict", "dgx-h100", "--ranks-per-node", "0"], "--ranks-per-node 0 is too few"),
        (["predict", "dgx-h100", "--ranks-per-node", "9"], "more than the 8 GPUs of a node .*; choose from 1 to 8"),
        (
            ["predict", "dgx-h100", "--ranks-per-node", "4", "--nodes", "10", "--ranks", "80"],
            "--ranks 80 is not --ranks-per-node 4 on 10 nodes; give --ranks 40, or leave it out",
        ),
        (["predict", "dgx-h100", "--ranks-per-node", "4", "--ranks", "10"], "on 3 nodes; give --ranks 12"),
        (["sweep", "--on", "cpu", "--ranks-per-node", "2"], "--ranks-per-node goes with a described system"),
        (["predict", "dgx-h100", "-r", "8"], "--root 8 is no rank; choose from 0 to 7"),
        (["predict", "dgx-h100", "--impl", "mpi"], "mpi does not run on gpu; choose from"),
        (["predict", "dgx-h100", "-b", "1M", "-e", "8"], "-b 1M is above -e 8"),
        (["predict"], "Missing argument"),
        (
            ["predict", "dgx-h100", "--nodes", "4", "--what-if", "rain"],
            "unknown what-if 'rain'; choose from: link-down=",
        ),
        (["predict", "dgx-h100", "--what-if", "ecmp"], "nothing between nodes here; give 2 nodes or more"),
        (["predict", "dgx-h100", "--nodes", "64", "--what-if", "link-down=leaf99:spine0"], "no link"),
    ],
)
def test_wrong_words_are_one_line_and_exit_2(
    here: Command, tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    """What is wrong, the choices, the fix; nothing is left behind."""
    done = here(*arguments)
    assert done.returncode == 2
    assert re.search(complaint, done.stderr), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_names_no_calibration_leaves_nothing_behind(here: Command, tmp_path: Path) -> None:
    """It is found out before a folder is made."""
    text = (files.FOLDER / "dgx-h100.toml").read_text()
    (tmp_path / "mine.toml").write_text(f'{text}\n[calibration]\nfile = "nowhere.toml"\n')
    done = here("predict", "mine.toml")
    assert done.returncode == 2
    assert "nowhere.toml cannot be read" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_options_of_measuring_are_named_and_change_nothing(here: Command, tmp_path: Path) -> None:
    """A command line of nccl-tests can be kept as it is."""
    few = ("--impl", "nccl", "-e", "1K")
    plain = here(*ON, *few)
    noted = here(*ON[:-1], "noted", *few, "-n", "20", "-w", "5", "-c", "1", "--spin", "busy")
    sentence = "nothing is measured, so without effect: --iters, --warmup_iters, --check, --spin"
    assert sentence in noted.stderr
    assert "without effect" not in plain.stderr
    assert read(tmp_path / "out").results == read(tmp_path / "noted").results


def test_what_says_how_to_measure_is_told_apart_from_what_says_which_cases() -> None:
    """A new option of `sweep` is an option of `predict` too, or named as one of measuring."""
    mine, theirs = ({param.name for param in command.params} for command in (sweep, predict))
    assert mine >= set(MEASURING)
    assert theirs >= mine - {"on", *MEASURING}
    assert not theirs & set(MEASURING)


def test_the_help_has_every_what_if(here: Command) -> None:
    """With its meaning; nobody should have to provoke an error to see them."""
    shown = " ".join(here("predict", "--help").stdout.split())
    assert all(what_if.form in shown and what_if.meaning in shown for what_if in WHAT_IFS.values())


def test_what_if_shows_before_and_after_and_says_why(here: Command, tmp_path: Path) -> None:
    """Four times fewer links above the leaves: large messages last longer, and the slowest NIC is named."""
    few = ("dgx-h100", "--nodes", "64", "-b", "1G", "-e", "1G", "--no-plot")
    assert here("predict", *few, "--out", "before").returncode == 0
    done = here("predict", *few, "--out", "after", "--what-if", "oversubscription=4")
    assert done.returncode == 0, done.stderr
    (before,), (after,) = (predictions(read(tmp_path / name)) for name in ("before", "after"))
    ratio = after.seconds / before.seconds
    assert 1.5 < ratio <= 4.01
    (row,) = re.findall(r"^ +1 GiB  nccl .*$", done.stdout, re.MULTILINE)
    assert f" {ratio:.2f}x  {after.algorithm}/{after.protocol} " in row
    assert (after.algorithm, after.protocol) == (before.algorithm, before.protocol)
    (share,) = re.findall(r"  predicted, NICs at (\d+%)$", row)
    assert re.search(
        rf"^\w+: the slowest NIC \(NIC \d+ of node \d+\) gets {share} of its rate: ", done.stdout, re.MULTILINE
    )
    header = read(tmp_path / "after").header.topology
    assert header.rest["what_ifs"] == ["oversubscription=4"]
    assert header.name.endswith("64 nodes of 8 GPUs, what if oversubscription=4")


def test_several_what_ifs_hold_together(here: Command, tmp_path: Path) -> None:
    """And a spelling that says the same twice changes nothing."""
    few = ("predict", "dgx-h100", "--nodes", "64", "-b", "1G", "-e", "1G", "--no-plot")
    for name, words in {"one": ["ecmp"], "two": ["ecmp", "oversubscription=8"], "none": ["adaptive"]}.items():
        assert here(*few, "--out", name, *(option for word in words for option in ("--what-if", word))).returncode == 0
    (one,), (two,), (none,) = (predictions(read(tmp_path / name)) for name in ("one", "two", "none"))
    assert none.seconds < one.seconds < two.seconds
    assert str(none.note) == ""


def test_a_network_that_is_described_as_narrow_is_predicted_so(here: Command, tmp_path: Path) -> None:
    """What a file says of its switches is no decoration."""
    text = (files.FOLDER / "dgx-h100.toml").read_text()
    (tmp_path / "narrow.toml").write_text(text.replace("radix = 32", "radix = 32\noversubscription = 4"))
    few = ("--nodes", "64", "-b", "1G", "-e", "1G", "--no-plot")
    assert here("predict", "narrow.toml", *few, "--out", "a").returncode == 0
    assert here("predict", "dgx-h100", "--what-if", "oversubscription=4", *few, "--out", "b").returncode == 0
    assert predictions(read(tmp_path / "a")) == predictions(read(tmp_path / "b"))


SPY = """
import sys
started = []
sys.addaudithook(lambda event, _: started.append(event) if event in {
    "subprocess.Popen", "os.fork", "os.posix_spawn", "os.exec", "socket.connect", "socket.bind"} else None)
from collbench.cli import group
group.main(sys.argv[1:], standalone_mode=False)
heavy = {"mpi4py", "cupy", "pynvml", "matplotlib", "jinja2", "scipy"} & set(sys.modules)
print(*sorted(heavy), *started, file=sys.stderr)
"""


def test_nothing_is_started_and_nothing_heavy_imported(tmp_path: Path, environment: dict[str, str]) -> None:
    """No rank, no MPI, no CUDA, and Matplotlib for plots only."""
    done = subprocess.run(
        [sys.executable, "-c", SPY, *ON],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr.splitlines()[-1] == ""
    assert "predicted" in done.stdout


@pytest.mark.parametrize("nodes", ["1", "12500"])
def test_a_hundred_thousand_gpus_are_no_slower_than_eight(collbench: Command, nodes: str) -> None:
    """Under two seconds of processor time, however loaded the machine is, with the interpreter's start."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = collbench(*ON, "--op", "allreduce", "-b", "8", "-e", "16G", "-f", "4", "--nodes", nodes)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert f"{int(nodes) * 8} ranks" in done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2


def test_under_a_launcher_one_process_speaks(collbench: Command, tmp_path: Path) -> None:
    """The others have nothing to do."""
    quiet = collbench(*ON, "-e", "8", PMI_RANK="1", PMI_SIZE="2")
    assert (quiet.returncode, quiet.stdout) == (0, ""), quiet.stderr
    assert list(tmp_path.iterdir()) == []
    assert "predicted" in collbench(*ON, "-e", "8", PMI_RANK="0", PMI_SIZE="2").stdout
    what_if = ("predict", "dgx-h100", "--nodes", "40", "--what-if", "ecmp", "--no-plot")
    assert collbench(*what_if, PMI_RANK="1", PMI_SIZE="2").stdout == ""


@pytest.mark.parametrize(("arguments", "block"), BLOCK.findall(README.read_text()), ids=["table", "what if"])
def test_the_readme_shows_what_the_command_prints(arguments: str, block: str) -> None:
    """Word for word; `python -m tools.readme` writes it anew."""
    assert printed(arguments) == block
