"""`collbench plot`: which files it writes, what it prints, and how it says no."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from PIL import Image

from collbench.cases import Case
from collbench.cli.plot import command
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, NONE
from collbench.errors import CollbenchError, RunFileError, UsageError
from collbench.figures.kinds import kinds
from collbench.figures.styles import STYLES, Style
from collbench.figures.views import QUANTITIES
from collbench.measurement import Failed, Measurement
from collbench.measurement import Result as Row
from collbench.runs.file import Writer
from collbench.runs.header import Header
from tests.figures.made_up_runs import MADE_UP, scaled


def write_run(
    folder: Path, topology: str = "2 sockets", measured: bool = True, implementations: tuple[str, ...] = ("mpi",)
) -> Path:
    """A run file as a sweep leaves it: a header, four sizes of each implementation, an end."""
    with Writer(folder) as writer:
        writer.header(Header.from_json({"topology": {"name": topology}}))
        for nbytes in (64, 256, 1024, 4096):
            case = Case(COLLECTIVES["broadcast"], nbytes, DATATYPES["float"], NONE, 0, 2, False)
            for name in implementations:
                good, bad = Measurement(case, name, "cpu", 64, (1e-6,) * 7), Failed(case, name, "cpu", "hung")
                writer.append(good if measured else bad)
        writer.end("2025-01-01T00:00:00+00:00", 0)
    return writer.path


def plot(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def refusal(result: Result) -> CollbenchError:
    """The error that the command line prints as one line."""
    assert isinstance(result.exception, CollbenchError), result.output
    assert "\n" not in str(result.exception)
    assert result.exception.exit_status == 2
    assert not result.stdout
    return result.exception


@pytest.mark.parametrize("named", ["file", "folder"])
def test_figures_go_beside_the_run_and_their_paths_to_stdout(tmp_path: Path, named: str) -> None:
    """Whether the run is named by its file or by its folder."""
    path = write_run(tmp_path / "run")
    result = plot(path if named == "file" else path.parent)
    assert result.exit_code == 0, result.output
    expected = [path.parent / "bandwidth.png", path.parent / "latency.png"]
    assert [Path(line) for line in result.stdout.splitlines()] == expected
    assert all(figure.is_file() for figure in expected)


def test_folder_and_formats_can_be_chosen(tmp_path: Path) -> None:
    """The folder is made; a format named twice is written once."""
    run, out = write_run(tmp_path / "run"), tmp_path / "new" / "figures"
    result = plot(run, "--view", "latency", "--out", out, "--format", "svg", "--format", "pdf", "--format", "svg")
    names = ["latency.svg", "latency.pdf"]
    assert [Path(line) for line in result.stdout.splitlines()] == [out / name for name in names]
    assert sorted(path.name for path in out.iterdir()) == sorted(names)
    assert [path.name for path in run.parent.iterdir()] == ["run.jsonl"]


def test_several_runs_become_panels_of_one_figure(tmp_path: Path) -> None:
    """Beside the first run, and nothing beside the second."""
    first, second = write_run(tmp_path / "a"), write_run(tmp_path / "b", topology="NVSwitch")
    result = plot(first, second, "--view", "latency")
    assert [Path(line) for line in result.stdout.splitlines()] == [first.parent / "latency.png"]
    assert list(second.parent.iterdir()) == [second]


def test_missing_run_is_named(tmp_path: Path) -> None:
    """With what was expected there."""
    assert "nowhere" in str(refusal(plot(tmp_path / "nowhere")))


def test_file_that_is_no_run_is_named(tmp_path: Path) -> None:
    """Rather than drawn in part."""
    path = tmp_path / "run.jsonl"
    path.write_text("")
    error = refusal(plot(path))
    assert isinstance(error, RunFileError)
    assert str(path) in str(error)


def test_run_without_measurements_says_so(tmp_path: Path) -> None:
    """An empty success would look like figures somewhere else."""
    path = write_run(tmp_path / "run", measured=False)
    error = refusal(plot(path))
    assert isinstance(error, UsageError)
    assert str(error).startswith(f"nothing to plot: no measurement in {path} was right")
    assert list(path.parent.iterdir()) == [path]


def test_folder_that_cannot_be_written_says_which_and_what_to_do(tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    path = write_run(tmp_path / "run")
    error = refusal(plot(path, "--out", path / "figures"))
    assert (
        str(error) == f"cannot write figures to {path / 'figures'}: Not a directory; choose another folder with --out"
    )


def test_unknown_format_is_a_usage_error(tmp_path: Path) -> None:
    """That names the choices."""
    result = plot(write_run(tmp_path / "run"), "--format", "gif")
    assert result.exit_code == 2
    assert all(choice in result.stderr for choice in ("png", "svg", "pdf"))


@pytest.mark.parametrize("view", [quantity.name for quantity in QUANTITIES if quantity.name != "bound"])
def test_views_are_chosen_by_name(tmp_path: Path, view: str) -> None:
    """One file each, and no other."""
    run = write_run(tmp_path / "run", implementations=("mpi", "ring-flags"))
    assert plot(run, "--view", view).stdout.splitlines() == [str(run.parent / f"{view}.png")]


def test_a_view_without_its_facts_says_why_and_leaves_the_others(tmp_path: Path) -> None:
    """On stderr, so that a script still reads paths; alone it is an error."""
    run = write_run(tmp_path / "run")
    result = plot(run, "--view", "latency,bound")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [str(run.parent / "latency.png")]
    assert result.stderr.startswith("bound not drawn for 2 sockets, 2 ranks: no bound is known: ")
    error = refusal(plot(run, "--view", "bound"))
    assert str(error).startswith("nothing to plot: bound not drawn for 2 sockets")
    assert "--as SYSTEM" in str(error)


def test_a_named_machine_gives_a_bound(tmp_path: Path) -> None:
    """To a file that does not say what was measured."""
    run = write_run(tmp_path / "run")
    assert plot(run, "--view", "bound", "--as", "dgx-a100").stdout.splitlines() == [str(run.parent / "bound.png")]


@pytest.mark.parametrize(
    ("option", "word", "choices"),
    [
        ("--view", "speed", [quantity.name for quantity in QUANTITIES]),
        ("--style", "poster", list(STYLES)),
        ("--impl", "nccl", ["library", "ladder", "mpi", "ring-flags"]),
        ("--impl", "mpi,", ["library", "ladder", "mpi", "ring-flags"]),
        ("--as", "dgx-z", ["dgx-h100"]),
    ],
)
def test_unknown_words_are_refused_with_the_choices(tmp_path: Path, option: str, word: str, choices: list[str]) -> None:
    """Before anything is written."""
    run = write_run(tmp_path / "run", implementations=("mpi", "ring-flags"))
    error = refusal(plot(run, option, word, "--out", tmp_path / "new"))
    assert all(choice in str(error) for choice in choices)
    assert not (tmp_path / "new").exists()


@pytest.fixture(scope="module")
def of_both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The picture of a run of two implementations, beside the run."""
    run = write_run(tmp_path_factory.mktemp("both") / "run", implementations=("mpi", "ring-flags"))
    (path,) = plot(run, "--view", "bandwidth").stdout.splitlines()
    return Path(path)


@pytest.mark.parametrize("names", ["ring-flags", "ladder", " ring-flags,ring-flags"])
def test_implementations_can_be_chosen(tmp_path: Path, of_both: Path, names: str) -> None:
    """By name or as a group; their pictures differ from those of all."""
    (some,) = plot(of_both.parent, "--view", "bandwidth", "--impl", names, "-o", tmp_path).stdout.splitlines()
    assert Path(some).read_bytes() != of_both.read_bytes()


@pytest.mark.parametrize("style", STYLES.values(), ids=lambda style: style.name)
def test_every_style_has_its_size(tmp_path: Path, style: Style) -> None:
    """In pixels at its resolution, with room for the names at the ends of lines."""
    (path,) = plot(write_run(tmp_path / "run"), "--style", style.name, "--view", "latency").stdout.splitlines()
    with Image.open(path) as picture:
        assert picture.size[0] == int((style.width(1) + style.margin) * style.dpi + 1e-6)


def test_an_overlay_is_one_file_of_all_runs(tmp_path: Path) -> None:
    """Under a name that does not hide the panels'."""
    first, second = write_run(tmp_path / "a"), write_run(tmp_path / "b", topology="NVSwitch")
    result = plot(first, second, "--view", "latency", "--overlay")
    assert [Path(line) for line in result.stdout.splitlines()] == [first.parent / "overlay-latency.png"]


def test_the_help_names_every_view_and_style() -> None:
    """And needs no Matplotlib (tests/test_layers.py)."""
    told = plot("--help").stdout
    assert all(word in told for word in (*STYLES, *(quantity.name for quantity in QUANTITIES)))


def kept(folder: Path, *rows: Row) -> Path:
    """The folder of a run file with these rows."""
    with Writer(folder) as writer:
        writer.header(Header.from_json({"topology": {"name": "2 sockets"}}))
        for row in rows:
            writer.append(row)
        writer.end("2025-01-01T00:00:00+00:00", 0)
    return folder


def test_what_a_command_measured_is_drawn_from_its_run_file(tmp_path: Path) -> None:
    """All kinds at once, each under a name with the place of its run behind it."""
    runs = [kept(tmp_path / name, *rows) for name, rows in MADE_UP.items()]
    result = plot(*runs, "--out", tmp_path / "figures", "--format", "svg", "--view", "latency")
    assert result.exit_code == 0, result.output
    names = {Path(line).stem for line in result.stdout.splitlines()}
    for place, name in enumerate(MADE_UP, 1):
        stems = {"latency"} if name == "curves" else {f"{kind}-{place}" for kind in FIRST[name]}
        assert stems <= names, name
    assert all(Path(line).stat().st_size > 3000 for line in result.stdout.splitlines())
    assert set(FIRST) == set(kinds()) - {"curves"}


FIRST = {
    "wires": ("wires-allreduce-float-sum",),
    "scaling": ("scaling",),
    "overlap": ("buckets-mpi", "overlap-mpi", "buckets-auto", "overlap-auto"),
    "lateness": ("lateness-allreduce-float-1024B-mpi", "lateness-allreduce-float-1024B-auto"),
    "losses": ("losses",),
    **{name: (name,) for name in ("layouts", "memory", "efficiency", "interconnects", "pareto", "pipeline")},
    "timeline": ("timeline-allreduce-float-sum-1024B-ring-flags", "shares-allreduce-float-sum-1024B"),
}


def test_an_implementation_can_be_chosen_of_steps_too(tmp_path: Path) -> None:
    """And the others are not drawn."""
    runs = [kept(tmp_path / name, *MADE_UP[name]) for name in ("overlap", "lateness")]
    result = plot(*runs, "--impl", "auto", "--out", tmp_path / "figures", "--format", "svg")
    assert {Path(line).stem for line in result.stdout.splitlines()} == {
        "buckets-auto",
        "overlap-auto",
        "lateness-allreduce-float-1024B-auto-2",
    }


def test_a_style_that_is_called_as_a_group_is_one(tmp_path: Path) -> None:
    """`library` is a way to keep ranks in step too."""
    rows = [replace(row, implementation="library") for row in MADE_UP["losses"][:4]] + MADE_UP["losses"][4:]
    run = kept(tmp_path / "run", *rows)
    one, all_ = (
        Path(plot(run, *words, "-o", tmp_path / place, "--format", "svg").stdout.strip()).read_bytes()
        for place, words in (("one", ("--impl", "library")), ("all", ()))
    )
    assert one != all_


def test_steps_without_anything_to_draw_say_what_they_lack(tmp_path: Path) -> None:
    """In one line: a scaling that ended after its first row."""
    run = kept(tmp_path / "run", scaled()[0])
    error = refusal(plot(run))
    assert str(error).startswith(f"nothing to plot: {run / 'run.jsonl'}: scaling is drawn of steps on several numbers")


def test_pictures_of_steps_that_cannot_be_written_are_one_line(tmp_path: Path) -> None:
    """As those of sweeps."""
    run = kept(tmp_path / "run", *scaled())
    assert "Not a directory; choose another folder with --out" in str(refusal(plot(run, "-o", run / "run.jsonl" / "x")))
    (tmp_path / "scaling.png").symlink_to(tmp_path / "elsewhere")
    assert "is a link, and is not written through" in str(refusal(plot(run, "-o", tmp_path)))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("words", ["seven", "-1", "", "7.5", "9" * 30, "²"])
def test_a_number_of_lines_that_is_none_is_one_line(tmp_path: Path, words: str) -> None:
    """With what is possible."""
    assert "give 0 or more, or all" in str(refusal(plot(write_run(tmp_path / "run"), f"--lines={words}")))


def test_lines_and_a_linear_axis_can_be_asked_for(tmp_path: Path) -> None:
    """Each is another picture."""
    run = write_run(tmp_path / "run")
    pictures = []
    for words in ((), ("--lines", "0"), ("--lines", "all"), ("--linear",)):
        (path,) = plot(run, "--view", "bandwidth", "--format", "svg", *words).stdout.splitlines()
        pictures.append(Path(path).read_bytes())
    usual, grey, every, linear = pictures
    assert usual == every, "these are few"
    assert len({usual, grey, linear}) == 3
