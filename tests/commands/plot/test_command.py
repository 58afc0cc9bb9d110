"""`collbench plot`: which files it writes, what it prints, and how it says no."""

from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from collbench.commands.plot.command import command
from collbench.plots.views import VIEWS
from collbench.present.figures import STYLES
from collbench.results import Failed
from collbench.results import Result as Row
from collbench.runfile.schema import Header
from collbench.runfile.store import Writer
from tests.commands.conftest import refusal
from tests.conftest import measurement, needs_command
from tests.plots.made_up_runs import MADE_UP


def write_run(folder: Path, measured: bool = True, implementations: tuple[str, ...] = ("mpi",)) -> Path:
    rows: list[Row] = []
    for nbytes, name in product((64, 256, 1024, 4096), implementations):
        good = measurement(name, collective="broadcast", nbytes=nbytes)
        rows.append(good if measured else Failed(good.case, name, "cpu", "hung"))
    return kept(folder, *rows) / "run.jsonl"


def plot(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_figures_go_beside_the_run_and_their_paths_to_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_run(tmp_path / "run")
    result = plot(path)
    assert result.exit_code == 0, result.output
    expected = [path.parent / "bandwidth.png", path.parent / "latency.png"]
    assert [Path(line) for line in result.stdout.splitlines()] == expected
    assert all(figure.is_file() for figure in expected)
    run, out = write_run(tmp_path / "other"), tmp_path / "new" / "figures"
    words = ("--view", "latency", "--out", out, "--format", "svg", "--format", "pdf", "--format", "svg")
    result = plot(run.parent, *words)
    names = ["latency.svg", "latency.pdf"]
    assert [Path(line) for line in result.stdout.splitlines()] == [out / name for name in names]
    assert sorted(path.name for path in out.iterdir()) == sorted(names)
    assert plot(path, run).stdout.split() == ["figures/bandwidth.png", "figures/latency.png"], "of no run alone"
    assert [path.name for path in run.parent.iterdir()] == ["run.jsonl"]


def test_a_name_that_ends_as_a_picture_is_the_file_of_the_only_figure(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name) for name in ("a", "b")]
    for name, words in (("both.png", []), ("both.v2.svg", []), ("both.pdf", ["--view", "latency", "--format", "pdf"])):
        file = tmp_path / "new" / name
        result = plot(*runs, "-o", file, *words)
        assert (result.stdout.splitlines(), result.exit_code) == ([str(file)], 0), result.output
        assert file.is_file()
    (tmp_path / "folder.png").mkdir()
    assert plot(*runs, "-o", tmp_path / "folder.png").exit_code == 0
    assert (tmp_path / "folder.png" / "latency.png").is_file()


def test_what_cannot_be_drawn_is_refused_with_the_choices(tmp_path: Path) -> None:
    needs_command("step")  # rows of steps
    run = write_run(tmp_path / "run", implementations=("mpi", "ring-flags"))
    failed = write_run(tmp_path / "failed", measured=False)
    (tmp_path / "empty.jsonl").write_text("")
    steps = kept(tmp_path / "steps", *MADE_UP["scaling"])
    (tmp_path / "scaling.png").symlink_to(tmp_path / "elsewhere")
    implementations = ["library", "ladder", "mpi", "ring-flags"]
    for words, told in (
        ([tmp_path / "nowhere"], ["nowhere"]),
        ([tmp_path / "empty.jsonl"], ["empty.jsonl"]),
        ([failed], [f"nothing to plot: no measurement in {failed} was right"]),
        ([run, "-o", run / "x"], [f"cannot write figures to {run / 'x'}: Not a directory; choose another folder"]),
        ([steps, "-o", steps / "run.jsonl" / "x"], ["Not a directory; choose another folder with --out"]),
        ([steps, "-o", tmp_path], ["is a link, and is not written through"]),
        ([kept(tmp_path / "one", MADE_UP["scaling"][0])], ["run.jsonl: scaling is drawn of steps on several numbers"]),
        ([run, "--view", "bound"], ["nothing to plot: bound not drawn for 2 sockets", "--on SYSTEM"]),
        ([run, "--view", "speed", "-o", "new"], [quantity.name for quantity in VIEWS]),
        ([run, "-o", "new/x.png", "--view", "all"], ["new/x.png is one file", "latency", "give a folder", "--view"]),
        ([run, "-o", "new/x.png", "--format", "pdf"], ["--format pdf", "x.png takes png", "leave --format out"]),
        ([run, "--style", "poster", "-o", "new"], list(STYLES)),
        ([run, "--impl", "nccl", "-o", "new"], implementations),
        ([run, "--impl", "mpi,", "-o", "new"], implementations),
        ([run, "--on", "dgx-z", "-o", "new"], ["dgx-h100"]),
        ([run, "--format", "gif"], ["png", "svg", "pdf"]),
        *(([run, f"--lines={word}"], ["give 0 or more, or all"]) for word in ("seven", "-1", "", "9" * 30, "²")),
    ):
        error = refusal(plot(*words))
        assert all(word in error for word in told), (words, error)
    assert [path.name for path in run.parent.iterdir()] == ["run.jsonl"]
    assert not (tmp_path / "elsewhere").exists()
    assert not Path("new").exists()


def kept(folder: Path, *rows: Row) -> Path:
    with Writer(folder) as writer:
        writer.header(Header.from_json({"topology": {"name": "2 sockets"}}))
        for row in rows:
            writer.append(row)
        writer.end("2025-01-01T00:00:00+00:00", 0)
    return folder
