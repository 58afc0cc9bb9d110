"""collbench as a library: its functions mean what the commands of their names mean, and its examples are true."""

import doctest
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import collbench
from collbench.cli.commands import group
from collbench.errors import Notice, RunFileError, UsageError
from tests.cli.made_up_ranks import made_up_ranks
from tests.conftest import ROOT
from tests.formats.goldens import DATA

__all__ = ["made_up_ranks"]

SAME = {"cudagraph": bool, "formats": tuple}  # by another type than on the command line
OTHERS = {  # parameters that are no option of the command, by function
    "check": {"each"},
    "compare": {"base", "new"},
    "diagnose": {"run"},
    "import_": {"files"},
    "plot": {"runs", "views", "impl", "lines", "say"},  # names in a sequence, and a number
    "predict": {"system", "what_if"},
    "read": {"path"},
    "report": {"runs"},
    "sweep": {"each"},
    "train": set(),
}

WORDS = dict.fromkeys(("diagnose", "import_", "plot", "report"), ("a",)) | dict.fromkeys(
    ("check", "sweep", "train"), ()
)
WORDS |= {"compare": ("a", "b"), "predict": ("dgx-h100",)}


def test_a_function_has_the_options_and_defaults_of_its_command() -> None:
    """By the command's long names, but for what a program says otherwise: which run, and where to write."""
    assert set(OTHERS) == set(collbench.__all__) == {*WORDS, "read"}
    for name, words in WORDS.items():
        command = group.get_command(None, name.rstrip("_"))  # type: ignore[arg-type]
        assert command, name
        usual = command.make_context(name, [*words]).params
        for given in inspect.signature(getattr(collbench, name)).parameters.values():
            if given.name not in OTHERS[name] and given.name != "out":
                known = SAME.get(given.name, lambda value: value)(usual[given.name])
                assert known == _plain(given.default), (name, given.name)


def _plain(value: object) -> object:
    """A size is a text on the command line."""
    return str(value) if type(value) is int and value == 8 else value


@pytest.mark.usefixtures("made_up_ranks")
def test_the_examples_of_every_function_are_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they stand in its docstring, in the checkout."""
    monkeypatch.chdir(ROOT)
    for module in ("checking", "importing", "measuring", "reading", "reporting", "training"):
        outcome = doctest.testmod(importlib.import_module(f"collbench.api.{module}"), report=True)
        assert outcome.attempted > 2, module
        assert outcome.failed == 0, module


def test_importing_collbench_imports_nothing_else() -> None:
    """Its functions are there, and what they need is imported with the first of them."""
    said = "import sys, collbench; print(sorted(dir(collbench))); print('numpy' in sys.modules, collbench.read)"
    done = subprocess.run([sys.executable, "-c", said], cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(f"'{name}'" in done.stdout for name in collbench.__all__)
    assert "\nFalse <function read" in done.stdout
    with pytest.raises(AttributeError, match="no attribute 'weep'"):
        collbench.weep  # noqa: B018


@pytest.mark.usefixtures("made_up_ranks")
def test_a_sweep_is_measured_and_stored_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result as it arrives, the same in the run, and in its file."""
    monkeypatch.chdir(tmp_path)
    arrived: list[object] = []
    run = collbench.sweep(
        on="cpu", impl=["mpi", "two-shot"], minbytes=64, maxbytes="1K", iters=7, out="own", each=arrived.append
    )
    assert list(run.results) == arrived
    assert [(row["implementation"], row["nbytes"], row["outcome"]) for row in run.rows()] == [
        (name, size, "ok") for size in (64, 256, 1024) for name in ("mpi", "two-shot")
    ]
    again = collbench.read("own")
    assert again.rows() == run.rows()
    assert again.complete
    unstored = collbench.sweep(on="cpu", impl="mpi", minbytes=64, maxbytes=64, iters=7)
    assert len(unstored.results) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"own"}
    comparison = collbench.compare(run, again)
    assert {row.verdict.value for row in comparison.rows} <= {"same", "inconclusive"}
    assert [path.exists() for path in collbench.plot(run, "pictures")] == [True, True]
    assert collbench.plot(run, "pictures/alone.svg") == [Path("pictures/alone.svg")]


def test_a_sweep_on_a_system_is_a_prediction() -> None:
    """The same rows either way; a change of the network makes it slower."""
    swept = collbench.sweep(on="dgx-h100", impl="nccl", nodes=4, minbytes="64M", maxbytes="64M")
    predicted = collbench.predict("dgx-h100", nodes=4, minbytes=2**26, maxbytes=2**26)
    assert swept.results == predicted.results
    changed = collbench.predict("dgx-h100", nodes=64, minbytes=2**26, maxbytes=2**26, what_if=["oversubscription=4"])
    unchanged = collbench.predict("dgx-h100", nodes=64, minbytes=2**26, maxbytes=2**26)
    assert changed.rows()[0]["seconds"] > 1.2 * unchanged.rows()[0]["seconds"]


def test_a_plan_of_training_is_stored_as_a_run_and_refuses_what_cannot_be(tmp_path: Path) -> None:
    """With the rows that it has in memory, which a report shows; also on a run, given as such."""
    plan = collbench.train(
        "gpt3-175b", "dgx-a100", gpus=1024, batch=1536, layout="tp8", price=2.5, scale="512,1024", out=tmp_path / "plan"
    )
    stored = collbench.read(tmp_path / "plan")
    assert stored.results == plan.run().results == tuple(plan.rows())
    assert [size.gpus for size in plan.sizes] == [512, 1024]
    assert stored.results[0].implementation == plan.best.layout.name
    assert collbench.report(stored) == tmp_path / "plan" / "report.html"
    measured = collbench.read(ROOT / "results" / "cpu-2-ranks")
    small = "layers=4,hidden=256,heads=4,sequence=128,vocabulary=1000"
    assert collbench.train(small, measured, batch=8, tflops=0.05, memory=4).best.layout.gpus == 2
    for words, reason in (
        ({"deadline": "30d"}, "--deadline needs a --price"),
        ({"price": -1.0}, "--price -1"),
        ({"top": 0}, "--top 0"),
        ({"gpus": 0}, "--gpus 0"),
        ({"fitted": True}, "--fitted is of a run's curves"),
        ({"price": 1.0, "up_or_out": ["dgx-h100"]}, "has no price"),
    ):
        with pytest.raises(UsageError, match=reason):
            collbench.train(**words)  # type: ignore[arg-type]


def test_other_tools_results_are_runs_and_what_is_left_out_is_warned_of(tmp_path: Path) -> None:
    """One for each machine, in folders of their own where they are stored."""
    log, other = DATA / "nccl_tests_2_19.txt", DATA / "rccl_mpi.csv"
    (unstored,) = collbench.import_(log)
    with pytest.warns(Notice, match="left out: 1 row"):
        runs = collbench.import_([log, str(other)], out=tmp_path / "in")
    assert runs[0].results == unstored.results == collbench.read(tmp_path / "in" / "1-allreduce").results
    assert [run.path.parent.name for run in runs] == ["1-allreduce", "2-allreduce"]
    assert collbench.report(unstored, tmp_path / "page.html").exists()
    with pytest.warns(Notice, match="cannot read nowhere.log"):
        assert [run.results for run in collbench.import_([log, "nowhere.log"])] == [unstored.results]
    (tmp_path / "init.txt").write_text("# OSU MPI Init Test v7.3\n# Size          Latency (us)\n8      1.20\n")
    with pytest.raises(RunFileError, match=r"init\.txt: nothing to import: 1 row: .* like 'Init'"):
        collbench.import_(tmp_path / "init.txt")
