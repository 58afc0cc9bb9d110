"""`collbench import` and `collbench export`: what they print and write, and that other commands take the result."""

import importlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from collbench.cli.export import command as export_command
from collbench.cli.fit import command as fit_command
from collbench.cli.plot import command as plot_command
from collbench.errors import CollbenchError, RunFileError, StorageError, UsageError
from collbench.formats import formats, written
from collbench.runs.file import read
from tests.conftest import ROOT, Command
from tests.formats.goldens import DATA

LOG = DATA / "nccl_tests_2_19.txt"
import_command = importlib.import_module("collbench.cli.import").command
diagnose_command = importlib.import_module("collbench.cli.diagnose").command


def call(command: object, *arguments: object, text: bytes | None = None) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], input=text)  # type: ignore[arg-type]


def imported(tmp_path: Path, *arguments: object) -> Path:
    """The folder of an import that worked."""
    result = call(import_command, *arguments, "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    return tmp_path / "run"


def refusal(result: Result) -> CollbenchError:
    assert isinstance(result.exception, CollbenchError), result.output
    assert "\n" not in str(result.exception)
    return result.exception


def test_an_import_prints_its_rows_and_where_they_are(tmp_path: Path) -> None:
    """Like a sweep: table and path to stdout, remarks to stderr."""
    result = call(import_command, LOG, "-o", tmp_path / "run")
    assert "allreduce, float, sum, in place, 4 ranks" in result.stdout
    assert result.stdout.splitlines()[-1] == f"run file: {tmp_path / 'run' / 'run.jsonl'}"
    assert "4 x NVIDIA H100 80GB HBM3" in result.stderr
    run = read(tmp_path / "run")
    assert len(run.results) == 14
    assert run.header.environment.host == "node07"


def test_without_a_folder_it_is_made_where_runs_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named after time, collective and host, whatever characters that has."""
    monkeypatch.chdir(tmp_path)
    text = LOG.read_bytes().replace(b"  node07", b"../../x")
    result = call(import_command, "-", text=text)
    (made,) = (tmp_path / "results" / "runs").iterdir()
    assert made.name.endswith("-allreduce-x-imported")
    assert str(made.relative_to(tmp_path)) in result.stdout


def test_tests_of_other_machines_go_into_folders_of_their_own(tmp_path: Path) -> None:
    """Each path is printed."""
    result = call(import_command, LOG, DATA / "rccl_mpi.csv", "-o", tmp_path / "runs")
    paths = [line.removeprefix("run file: ") for line in result.stdout.splitlines() if line.startswith("run file")]
    assert [Path(path).parent.name for path in paths] == ["1-allreduce", "2-allreduce"]
    assert all(read(Path(path)).results for path in paths)


def test_what_is_left_out_and_missing_is_said(tmp_path: Path) -> None:
    """On stderr and in the header."""
    result = call(import_command, DATA / "nccl_tests_torn.txt", "-o", tmp_path / "torn")
    assert "incomplete: no footer, 6 rows" in result.stderr
    assert "left out: 1 row: line" in result.stderr
    header = read(tmp_path / "torn").header.imported
    assert header.complete is False
    assert len(header.left_out) == 1
    result = call(import_command, DATA / "nccl_tests_hypercube.txt", "-o", tmp_path / "cube")
    assert "2 rows: collbench has no collective like hypercube_perf" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["nowhere.txt"], RunFileError, "cannot read nowhere.txt"),
        ([LOG, "--as", "xml"], UsageError, "unknown format 'xml'; choose from: nccl-tests-json"),
        ([LOG, "--as", "osu"], RunFileError, "without a row"),
        ([LOG, "--as", "csv"], RunFileError, "no column"),
        ([LOG, "--as", "nccl-tests-json"], RunFileError, "not JSON"),
        ([LOG, "--op", "allmagic"], UsageError, "unknown collective"),
        ([LOG, "--ranks", "0"], UsageError, "--ranks"),
        ([DATA / "osu_nccl_full.txt"], UsageError, "give --ranks N"),
        ([ROOT / "results" / "cpu-2-ranks-epyc" / "run.jsonl"], RunFileError, "is a run file of collbench already"),
        ([Path(__file__)], RunFileError, "nothing in it looks like results"),
    ],
)
def test_what_cannot_be_imported_is_named(
    arguments: list[object], error: type[CollbenchError], words: str, tmp_path: Path
) -> None:
    """And nothing is written."""
    result = call(import_command, *arguments, "-o", tmp_path / "run")
    found = refusal(result)
    assert isinstance(found, error)
    assert words in str(found)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["nccl_tests_2_19.txt", "nccl_tests_several_tests.txt", "rccl_mpi.csv", "tidy.csv"])
def test_other_commands_take_an_import(name: str, tmp_path: Path) -> None:
    """Diagnosed as what the file says (not enough) and as a named system; drawn; fitted where sizes suffice."""
    run = imported(tmp_path, DATA / name)
    plain = call(diagnose_command, run)
    assert plain.exit_code == 0, plain.output
    assert "name it with --as SYSTEM" in plain.stdout
    assert call(diagnose_command, run, "--as", "dgx-h100").exit_code == 0
    drawn = call(plot_command, run, "-o", tmp_path / "figures", "--format", "svg")
    assert drawn.exit_code == 0, drawn.output
    fitted = call(fit_command, run)
    if fitted.exit_code:
        assert "sizes, 4 are needed" in str(refusal(fitted)) or "size, 4 are needed" in str(refusal(fitted))
    else:
        assert "latency" in fitted.stdout


def test_an_import_is_judged_against_a_named_system(tmp_path: Path) -> None:
    """The point of importing: four H100 of a DGX, as expected."""
    result = call(diagnose_command, imported(tmp_path, LOG), "--as", "dgx-h100")
    assert "verdict: as expected" in result.stdout
    assert call(fit_command, imported(tmp_path / "again", LOG)).exit_code == 0


def test_sizes_of_no_bytes_are_kept_and_not_drawn(tmp_path: Path) -> None:
    """nccl-tests prints them where it rounds sizes down."""
    run = imported(tmp_path, DATA / "nccl_tests_several_tests.txt")
    assert any(result.case.nbytes == 0 for result in read(run).results)
    result = call(diagnose_command, run, "--as", "dgx-h100")
    assert result.exit_code == 0
    assert " 1 KiB" in result.stdout
    assert " 0 B" not in result.stdout


def test_an_export_goes_to_stdout_or_a_file(tmp_path: Path) -> None:
    """And brings the log back as it was."""
    run = imported(tmp_path, LOG)
    assert call(export_command, run, "--to", "nccl-tests").stdout == LOG.read_text()
    result = call(export_command, run, "--to", "nccl-tests", "-o", tmp_path / "log.txt")
    assert result.stdout == f"file: {tmp_path / 'log.txt'}\n"
    assert (tmp_path / "log.txt").read_text() == LOG.read_text()


def test_an_export_says_what_it_leaves_out(tmp_path: Path) -> None:
    """On stderr, with the reason."""
    result = call(export_command, imported(tmp_path, LOG), "--to", "osu")
    assert result.stderr == "left out: 7 rows: OSU has no results in place\n"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["--to", "rccl-csv"], UsageError, "choose from: nccl-tests-json, csv, osu, nccl-tests"),
        (["--to", "csv", "--impl", "mpi"], UsageError, "choose from: nccl"),
        (["--to", "csv", "-o", "/nowhere/file"], StorageError, "cannot write /nowhere/file"),
    ],
)
def test_what_cannot_be_exported_is_named(
    arguments: list[str], error: type[CollbenchError], words: str, tmp_path: Path
) -> None:
    """With the choices."""
    found = refusal(call(export_command, imported(tmp_path, LOG), *arguments))
    assert isinstance(found, error)
    assert words in str(found)


def test_the_help_names_every_format() -> None:
    """Those that are read, and those that are written."""
    for command, names in ((import_command, formats()), (export_command, written())):
        shown = call(command, "--help").output
        assert all(name in shown for name in names)


def test_a_foreign_type_is_not_offered_by_a_sweep(here: Command) -> None:
    """There are no kernels for it."""
    done = here("sweep", "-d", "f8e4m3")
    assert done.returncode == 2
    assert "known from other tools only; choose from: float" in done.stderr


def test_the_real_commands(collbench: Command, tmp_path: Path) -> None:
    """From a shell: import, then export of our own run as JSON that parses."""
    done = collbench("import", str(LOG), "-o", "run")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "run file: run/run.jsonl")
    done = collbench("export", "run", "--to", "nccl-tests-json")
    assert json.loads(done.stdout)["results"][0]["out_of_place"]["time"] == 12.9
