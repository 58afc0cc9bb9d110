"""collbench as a library: its functions mean what the commands of their names mean, and its examples are true."""

import copy
import dataclasses
import doctest
import inspect
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, get_args, get_origin

import click
import numpy as np
import pytest

import collbench
from collbench.cli.group import group
from collbench.errors import Notice, RunFileError, UsageError
from collbench.requests import functions, reworded, sessions, sweeps
from collbench.units import duration, parse_share
from tests.commands.formats.goldens import DATA
from tests.commands.made_up_ranks import made_up_ranks
from tests.conftest import ROOT

__all__ = ["made_up_ranks"]

SAME = {"cudagraph": bool, "formats": tuple}  # by another type than on the command line
OTHERS = {  # parameters that are no option of the command, by function
    "check": {"each"},
    "compare": {"base", "new"},
    "explain": {"each"},
    "import_": {"files"},
    "startup": {"each"},
    "pairs": {"each"},
    "scan": {"each", "resume"},
    "plot": {"runs", "views", "impl", "lines", "say"},  # names in a sequence, and a number
    "predict": {"system", "what_if"},
    "read": {"path"},
    "report": {"runs"},
    "step": {"each"},
    "sweep": {"each", "also"},
    "topo": set(),
    "train": set(),
    "verify": {"each"},
}

WORDS = dict.fromkeys(("import_", "plot", "report"), ("a",)) | dict.fromkeys(
    ("check", "explain", "pairs", "scan", "startup", "sweep", "topo", "train", "verify"), ()
)
WORDS |= {"compare": ("a", "b"), "predict": ("dgx-h100",), "step": ("scale",)}


def test_a_function_has_the_options_and_defaults_of_its_command() -> None:
    assert set(OTHERS) == set(collbench.__all__) == {*WORDS, "read"}
    for name, words in WORDS.items():
        command = group.get_command(None, name.rstrip("_"))  # type: ignore[arg-type]
        assert command, name
        if isinstance(command, click.Group):
            command = command.commands[words[0]]
            words = words[1:]
        usual = command.make_context(name, [*words]).params
        for given in inspect.signature(getattr(collbench, name)).parameters.values():
            if given.name not in OTHERS[name] and given.name != "out":
                known = SAME.get(given.name, lambda value: value)(usual[given.name])
                assert known == _plain(given.default), (name, given.name)


def _plain(value: object) -> object:
    """On the command line a size is a text, and a time and a share have been read."""
    if isinstance(value, str):
        return parse_share(value, "") if value.endswith("%") else duration(value) or value
    return str(value) if type(value) is int and value == 8 else value


@pytest.mark.usefixtures("made_up_ranks")
def test_the_examples_of_every_function_are_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for name, module in functions().items():
        outcome = doctest.testmod(import_module(module), report=True)
        assert outcome.attempted > 2, name
        assert outcome.failed == 0, name


def test_importing_collbench_imports_nothing_else() -> None:
    said = "import sys, collbench; print(sorted(dir(collbench))); print('numpy' in sys.modules, collbench.read)"
    done = subprocess.run([sys.executable, "-c", said], cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(f"'{name}'" in done.stdout for name in collbench.__all__)
    assert "\nFalse <function read" in done.stdout
    with pytest.raises(AttributeError, match="no attribute 'weep'"):
        collbench.weep  # noqa: B018


@pytest.mark.usefixtures("made_up_ranks")
def test_a_sweep_is_measured_and_stored_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert {row.word.value for row in comparison.rows} <= {"OK", "UNKNOWN"}
    assert [path.exists() for path in collbench.plot(run, "pictures")] == [True, True]
    assert collbench.plot(run, "pictures/alone.svg") == [Path("pictures/alone.svg")]


def test_the_help_of_the_package_and_its_page_name_every_function_and_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "runs.md").read_text()
    assert not [name for name in collbench.__all__ if "Raises:" not in (getattr(collbench, name).__doc__ or "")]
    assert {*re.findall(r"`(\w+)`", collbench.__doc__ or "")} == {*collbench.__all__}
    assert {*re.findall(r"^\| `(\w+)\(", page, re.MULTILINE)} == {*collbench.__all__}
    (tmp_path / "results").symlink_to(ROOT / "results")
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(example, {})
    assert "GB/s" in capsys.readouterr().out
    assert [*tmp_path.glob("pictures/*.png")]


FRAMES = {"pandas": "to_pandas", "pyarrow": "to_arrow", "polars": "to_polars"}


def test_runs_and_comparisons_are_frames_of_the_packages_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for package, method in FRAMES.items():
        made = SimpleNamespace(DataFrame=lambda rows, **_: rows, Table=SimpleNamespace(from_pylist=lambda rows: rows))
        for name in ("read", "compare"):
            value: Any = returned()[name]
            monkeypatch.setitem(sys.modules, package, made)
            assert getattr(value, method)() == value.records(), (package, name)
            monkeypatch.setitem(sys.modules, package, None)
            with pytest.raises(UsageError, match=f"pip install {package}"):
                getattr(value, method)()
    assert {str(row["word"]) for row in returned()["compare"].records()} <= {"OK", "SLOW", "FAST", "UNKNOWN"}  # type: ignore[attr-defined]


def test_a_column_of_rows_has_one_type_and_a_frame_takes_it_from_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = sorted((ROOT / "results").glob("**/run.jsonl"))
    assert len(paths) > 20
    for path in paths:
        for name, values in by_column(collbench.read(path).rows()).items():
            assert len({type(value) for value in values} - {type(None)}) <= 1, (path, name)
            first = {*values[:100]}  # polars knows no more of a column
            assert first != {None} or {*values} == {None}, (path, name)
    polars = SimpleNamespace(DataFrame=lambda rows, infer_schema_length: infer_schema_length)
    monkeypatch.setitem(sys.modules, "polars", polars)
    assert returned()["read"].to_polars() is None, "None in the first 100 rows is no type"  # type: ignore[attr-defined]


def by_column(rows: Sequence[Mapping[str, object]]) -> Mapping[str, list[object]]:
    assert len({tuple(row) for row in rows}) == 1
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_a_run_in_memory_claims_no_file() -> None:
    runs = [collbench.predict("dgx-h100"), collbench.step(counts=[1, 8], on="dgx-h100"), *returned()["import_"]]  # type: ignore[misc]
    for run in runs:
        assert repr(run).startswith("<Run not stored: "), run
        assert not run.path.exists()


def test_names_and_numbers_that_a_command_takes_with_commas_are_also_a_list() -> None:
    for ranks in ([1, 8, 16], (1, 8, 16), "1,8,16"):
        assert [row.case.ranks for row in collbench.step(counts=ranks, on="dgx-h100").results] == [1, 8, 16]
    assert collbench.train(on="dgx-h100", gpus=64, scale=[64, 128]).sizes  # type: ignore[arg-type]
    for words, told in (
        ({"system": ["dgx-h100", "mi300x"]}, "did you mean dgx-h100 or mi300x"),
        ({"system": "dgx-h100", "root": [0, 1]}, r"root=\[0, 1\] is no whole number"),
    ):
        with pytest.raises(UsageError, match=told):
            collbench.predict(**words)  # type: ignore[arg-type]


def test_a_sweep_on_a_system_is_a_prediction() -> None:
    with pytest.warns(DeprecationWarning, match="collbench.predict"):
        swept = collbench.sweep(on="dgx-h100", impl="nccl", nodes=4, minbytes="64M", maxbytes="64M")
    predicted = collbench.predict("dgx-h100", nodes=4, minbytes=2**26, maxbytes=2**26)
    assert swept.results == predicted.results
    few = {"nodes": 64, "minbytes": 2**26, "maxbytes": 2**26}
    unchanged, changed = (
        collbench.predict("dgx-h100", what_if=what_if, **few) for what_if in ([], "oversubscription=4")
    )
    assert changed.rows()[0]["seconds"] > 1.2 * unchanged.rows()[0]["seconds"]


def test_a_plan_of_training_is_stored_as_a_run(tmp_path: Path) -> None:
    plan = collbench.train(
        "gpt3-175b", "dgx-a100", gpus=1024, batch=1536, layout="tp8", price=2.5, scale="512,1024", out=tmp_path / "plan"
    )
    stored = collbench.read(tmp_path / "plan")
    assert stored.results == plan.run().results == tuple(plan.rows())
    assert [size.gpus for size in plan.sizes] == [512, 1024]
    assert stored.results[0].implementation == plan.best.implementation
    assert collbench.report(stored) == tmp_path / "plan" / "report.html"


def test_other_tools_results_are_runs_and_what_is_left_out_is_warned_of(tmp_path: Path) -> None:
    log, other = DATA / "nccl_tests_2_19.txt", DATA / "rccl_mpi.csv"
    (unstored,) = collbench.import_(log)
    assert {row["samples"] for row in unstored.rows()} == {None}
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


@cache
def returned() -> Mapping[str, object]:
    log, trimmed = (DATA / f"nccl_tests_{name}.txt" for name in ("2_19", "trimmed_ranks"))
    with warnings.catch_warnings(action="ignore"):
        (run,), (cut,) = collbench.import_(log), collbench.import_(trimmed)
        pairs = collbench.pairs(2, on="cpu", impl="mpi", size="16K")
    folder = ROOT / "results" / "cpu-ab-slowed-ring"
    return {
        "check": collbench.check(run=run, on="dgx-h100"),
        "compare": collbench.compare(folder / "as-is", folder / "COLLBENCH_KERNELS=my-kernels"),
        "explain": collbench.read(ROOT / "results" / "cpu-2-ranks-explained"),
        "import_": [run, cut],
        "startup": collbench.startup(2, on="cpu", starts=1, budget="10ms"),
        "pairs": pairs,
        "predict": collbench.predict("dgx-h100"),
        "read": collbench.read(ROOT / "results" / "cpu-2-ranks"),
        "scan": collbench.scan("dgx-h100", nodes=16, inject="node=3:0.6"),
        "step": collbench.step(counts="1,8", on="dgx-h100"),
        "sweep": collbench.predict("dgx-a100", op="all"),
        "topo": collbench.topo("dgx-h100", nodes=4),
        "train": collbench.train("gpt3-175b", "dgx-a100", gpus=64, price=2.5),
        "verify": collbench.verify("allreduce", on="cpu", impl="mpi", ranks=2),
    }


def objects(value: object, depth: int = 0) -> Iterator[object]:
    """The objects of collbench that a value holds in its fields, one of each type for each object that holds it."""
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        for part in {type(part): part for part in value}.values():
            yield from objects(part, depth)
    if dataclasses.is_dataclass(value) and depth < 4:
        yield value
        for field in dataclasses.fields(value):
            yield from objects(getattr(value, field.name), depth + 1)


def test_every_object_is_one_line_in_a_console() -> None:
    assert {*returned()} == {*collbench.__all__} - {"plot", "report"}, "those return paths"
    kinds = set()
    for name, value in returned().items():
        for each in objects(value):
            kinds.add(type(each))
            assert len(repr(each)) <= 250, (name, type(each))
            assert repr(each).isprintable(), (name, type(each))
    assert len(kinds) > 25


def test_every_object_can_be_pickled_and_copied() -> None:
    for name, value in returned().items():
        for again in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
            assert repr(again) == repr(value), name
    run = returned()["read"]
    assert pickle.loads(pickle.dumps(run)) == run
    for name in collbench.__all__:
        function = getattr(collbench, name)
        assert pickle.loads(pickle.dumps(function)) is function, name


def test_a_notebook_shows_tables_with_units() -> None:
    for name, value in returned().items():
        for each in value if isinstance(value, list) else [value]:
            page = each._repr_html_()
            assert page.count("<tr>") > 1, name
            assert "<td></td>" * len(page.split("<th>")[1:]) not in page, name
            assert "nan" not in page, name
    units = {
        "compare": ("KiB", " us"),
        "train": (" s<", "GiB", " %<"),
        "read": (" B<", " us", "GB/s"),
        "check": ("expected",),
    }
    for name, words in units.items():
        assert not [word for word in words if word not in returned()[name]._repr_html_()], name  # type: ignore[attr-defined]
    assert "GB/s" in collbench.check(run=ROOT / "results" / "cpu-2-ranks")._repr_html_()


SLOW = ROOT / "results" / "cpu-2-ranks"
USUAL: dict[str, dict[str, object]] = {
    "check": {"op": "barrier", "impl": "mpi"},
    "compare": {"base": SLOW, "new": SLOW},
    "predict": {"system": "dgx-h100", "maxbytes": "1M"},
    "sweep": {"on": "dgx-h100", "impl": "nccl", "maxbytes": "1M"},
    "train": {"price": 2.5},
}


def options_of(name: str) -> Iterator[click.Option]:
    """The options of the command of that name that are parameters of the function, too."""
    if name == "read":
        return
    parameters = inspect.signature(getattr(collbench, name)).parameters
    for option in group.get_command(None, name.rstrip("_")).params:  # type: ignore[arg-type,union-attr]
        if isinstance(option, click.Option) and option.name in parameters:
            yield option


@pytest.mark.usefixtures("made_up_ranks")
@pytest.mark.filterwarnings("ignore:collbench.sweep:DeprecationWarning")
def test_durations_sizes_and_shares_are_given_as_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLLBENCH_STATE", str(tmp_path))
    taken = []
    for name, words in USUAL.items():
        for option in options_of(name):
            text = {"time": "5s", "size": "64K", "share": "5%"}.get(option.type.name)
            if option.name == "deadline" or text:
                taken.append(f"{name} {option.name}")
                assert getattr(collbench, name)(**words | {option.name: text or "30d"}), taken[-1]
    assert {"check budget", "sweep budget", "sweep timeout", "sweep stepbytes", "compare margin"} <= {*taken}


def test_errors_name_the_parameters_of_the_function() -> None:
    for name in collbench.__all__:
        for option in options_of(name):
            letters, (long, *_) = (
                [word for word in option.opts if word.startswith("--") is is_long and word != "-o"]
                for is_long in (False, True)
            )
            for word in (*letters, long):
                said = reworded(f"{word} 7 is too few; leave {word} out", {option.name: 7})
                assert said == f"{option.name}=7 is too few; leave {option.name}= out", (name, word)
    given = {"spin": "busy", "on": None, "nodes": None, "formats": ("svg",)}
    for before, after in {
        "--spin busy: on cores only": "spin='busy': on cores only",
        "unknown --spin 'x'; choose": "unknown spin='x'; choose",
        "name it with --on dgx-h100 --nodes 2, or --on A.toml": "name it with on='dgx-h100' nodes=2, or on=A.toml",
        "leave --format out, or give --json": "leave formats= out, or give --json",
        "measure with `collbench sweep --on cpu`; check `lspci -vv`": (
            "measure with `collbench sweep --on cpu`; check `lspci -vv`"
        ),
    }.items():
        assert reworded(before, given) == after


def parameters_of(name: str) -> Iterator[tuple[str, list[object]]]:
    """The parameters of a function, each with the types that its annotation names."""
    for given in inspect.signature(getattr(collbench, name)).parameters.values():
        union = isinstance(given.annotation, UnionType)
        yield (
            given.name,
            [get_origin(part) or part for part in (get_args(given.annotation) if union else [given.annotation])],
        )


REQUIRED: dict[str, dict[str, object]] = {
    "compare": {"base": "a", "new": "b"},
    "check": {"run": "a"},
    "import_": {"files": "a"},
    "plot": {"runs": "a", "out": "b"},
    "predict": {"system": "dgx-h100"},
    "report": {"runs": "a"},
}


def test_a_value_of_another_type_is_refused_by_the_name_of_its_parameter() -> None:
    refused = set()
    for name in collbench.__all__:
        for parameter, kinds in parameters_of(name):
            for wrong in (object(), True, 2.5, "8"):
                if type(wrong) not in kinds and not (type(wrong) is str and Sequence in kinds):
                    with pytest.raises(UsageError, match=f"^{parameter}=.* is no "):
                        getattr(collbench, name)(**REQUIRED.get(name, {}) | {parameter: wrong})
                    refused.add((name, parameter, type(wrong)))
    assert {("predict", "in_place", str), ("sweep", "iters", float), ("check", "stepfactor", str)} <= refused
    assert {("train", "gpus", str), ("read", "path", bool), ("predict", "root", bool)} <= refused


def test_numbers_of_numpy_paths_and_one_name_of_several_are_taken(tmp_path: Path) -> None:
    run = collbench.predict("dgx-h100", ranks=np.int64(2), maxbytes=np.int64(64), stepfactor=np.float32(2))
    assert run.header.topology.ranks == 2
    (tmp_path / "mine.toml").write_bytes((ROOT / "collbench/topology/presets/dgx-h100.toml").read_bytes())
    assert collbench.predict(tmp_path / "mine.toml", maxbytes=64).results  # type: ignore[arg-type]
    pictures = collbench.plot(run, tmp_path, formats="png,svg", views="latency")
    assert [path.suffix for path in pictures] == [".png", ".svg"]


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    for name, words, told in (
        ("predict", {"system": "dgx-h100", "rank": 8}, r"parameter of predict\(\) 'rank'; .*did you mean ranks"),
        ("predict", {"system": "DGX-H100"}, "did you mean .*dgx-h100"),
        ("predict", {"system": "dgx-h100", "op": []}, "op= is empty"),
        ("import_", {"files": []}, "files= is empty"),
        ("sweep", {"minbytes": "7Q"}, "minbytes='7Q' is not a size"),
        ("sweep", {"minbytes": "7K", "maxbytes": 2048}, "minbytes='7K' is larger than maxbytes=2048"),
        ("sweep", {"stepfactor": 1}, "stepfactor=1 is not a factor"),
        ("sweep", {"nodes": 3}, "nodes= needs a described system"),
        ("check", {"budget": "5 parsecs"}, "budget='5 parsecs' is no duration"),
        ("check", {"run": SLOW, "reference": SLOW, "slower": "x"}, "slower='x' is no share"),
        ("compare", {"base": SLOW, "new": SLOW, "margin": 95}, "margin=95 is no share"),
        ("compare", {"base": SLOW, "new": SLOW, "only": "broadcast"}, "only='broadcast' selects no row"),
        ("train", {"tokens": "1e12"}, "tokens= needs price="),
        ("train", {"top": 0}, "top=0"),
        ("check", {"run": SLOW, "impl": "mpi", "minbytes": "1K"}, "leave out impl= and minbytes="),
        ("plot", {"runs": SLOW, "out": tmp_path / "x.jpg"}, "ends in .jpg; figures are .png"),
        ("plot", {"runs": SLOW, "out": tmp_path, "formats": "xyz"}, "choose from: png, svg, pdf"),
        ("plot", {"runs": SLOW, "out": tmp_path, "lines": -1}, "lines=-1 is no number of lines"),
        ("report", {"runs": SLOW, "out": tmp_path / "x.pdf"}, "like report.html"),
        ("train", {"on": "dgx-h100,dgx-a100"}, "on='dgx-h100' compare_interconnects='dgx-a100'"),
    ):
        with pytest.raises(UsageError, match=told):
            getattr(collbench, name)(**words)
    assert not [*tmp_path.iterdir()]


@pytest.mark.usefixtures("made_up_ranks")
def test_advice_belongs_to_the_run_and_costs_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "disturbed_in_words", lambda results: f"{len(results)} disturbed")
    for filters in ("default", "error"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(filters)  # type: ignore[arg-type]
            run = collbench.sweep(on="cpu", ranks=2, minbytes="8", maxbytes="64", impl="mpi")
        assert (len(run.results), run.advice) == (2, "2 disturbed")
        assert [Path(warning.filename) for warning in caught] == ([Path(__file__)] if filters == "default" else [])


def test_commands_that_begin_in_the_same_second_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [sweeps.new_folder(["allreduce"], "here") for _ in range(8)]
    assert len(set(folders)) == 8
    (folders[3] / "run.jsonl").touch()
    sweeps.remove_unused()
    assert [path.name for path in (tmp_path / "results" / "runs").iterdir()] == [folders[3].name]
