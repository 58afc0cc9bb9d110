"""`collbench import` and `collbench export`: what they print and write, and that other commands take the result."""

import importlib
import json
from pathlib import Path

from click.testing import CliRunner, Result

from collbench.commands.check.command import command as check_command
from collbench.commands.formats.export import command as export_command
from collbench.commands.plot.command import command as plot_command
from collbench.commands.predict.command import command as predict_command
from collbench.runfile.store import read
from tests.commands.conftest import refusal
from tests.commands.formats.goldens import DATA
from tests.conftest import ROOT

LOG = DATA / "nccl_tests_2_19.txt"
import_command = importlib.import_module("collbench.commands.formats.import").command
diagnose_command = importlib.import_module("collbench.commands.check.command").diagnosis


def call(command: object, *arguments: object, text: bytes | None = None) -> Result:
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(command, words, input=text, standalone_mode=False)  # type: ignore[arg-type]


def imported(tmp_path: Path, *arguments: object) -> Path:
    result = call(import_command, *arguments, "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    return tmp_path / "run"


def test_an_import_prints_its_rows_and_where_they_are(tmp_path: Path) -> None:
    result = call(import_command, LOG, "-o", tmp_path / "run")
    assert "allreduce, float, sum, in place, 4 ranks" in result.stdout
    assert result.stdout.splitlines()[-1] == f"run file: {tmp_path / 'run' / 'run.jsonl'}"
    assert f"4 x NVIDIA H100 80GB HBM3, from {LOG.name}\n" in result.stderr
    run = read(tmp_path / "run")
    assert len(run.results) == 14
    assert run.header.environment.host == "node07"


def test_what_cannot_be_imported_is_named(tmp_path: Path) -> None:
    for arguments, words in (
        (["nowhere.txt"], "cannot read nowhere.txt"),
        ([LOG, "--op", "allmagic"], "unknown collective"),
        ([LOG, "--ranks", 2**70], "is impossible; give at least 1"),
        ([DATA / "osu_nccl_full.txt"], "give --ranks N"),
        ([ROOT / "results" / "cpu-2-ranks-epyc" / "run.jsonl"], "is already a run file of collbench"),
        ([Path(__file__)], "nothing in it looks like results"),
    ):
        assert words in refusal(call(import_command, *arguments, "-o", tmp_path / "run")), arguments
    assert not (tmp_path / "run").exists()


def test_a_folder_is_imported_as_far_as_it_can_be_and_the_rest_is_listed(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    (logs / "below").mkdir(parents=True)
    right = {"one.txt": LOG, "below/two.out": DATA / "rccl_mpi.csv"}
    wrong = {
        "below/ranks.log": ((DATA / "osu_nccl_full.txt").read_bytes(), "give --ranks N"),
        "page.log": (b"<html></html>", "an HTML page"),
        "packed.json.gz": (b"\x1f\x8b", "cannot be decompressed"),
        "note.csv": (b"hello", "nothing in it looks like results"),
        "init.log": (b"# OSU MPI Init Test v7.3\n# Size  Latency (us)\n8  1.20\n", "no collective like 'Init'"),
    }
    for name, source in right.items():
        (logs / name).write_bytes(source.read_bytes())
    for name, (content, _) in wrong.items():
        (logs / name).write_bytes(content)
    (logs / "README.md").write_text("of no format")
    result = call(import_command, logs, "-o", tmp_path / "runs")
    assert result.return_value == 1, result.output
    assert result.stdout.count("run file: ") == len(right)
    listed = [line for line in result.stderr.splitlines() if line.startswith("not imported: ")]
    assert len(listed) == len(wrong), listed
    for name, (_, reason) in wrong.items():
        assert any(str(logs / name) in line and reason in line for line in listed), (name, listed)
    assert "not read: README.md" in result.stderr
    for name in right:
        (logs / name).unlink()
    assert "nothing can be imported: " in refusal(call(import_command, logs, "-o", tmp_path / "none"))


def logs_of_nodes(folder: Path, name: str, text: str) -> None:
    """A log for each of six nodes, the fourth of which is three times as slow."""
    for node in range(6):
        path = folder / name.format(node)
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [slowed(line, 3 if node == 3 else 1) for line in text.splitlines(True)]
        path.write_text("".join(lines).replace("node07", f"n{node}"))


def slowed(line: str, factor: int) -> str:
    """A row of nccl-tests whose two times are so many times as long; other lines as they are."""
    words = line.split()
    if not words or not words[0].isdigit():
        return line
    for place in (5, 9):
        time, *bandwidths = (float(word) for word in words[place : place + 3])
        words[place : place + 3] = [f"{time * factor:.2f}", *(f"{bandwidth / factor:.2f}" for bandwidth in bandwidths)]
    return " ".join(words) + "\n"


NAMELESS = "".join(line for line in LOG.read_text().splitlines(True) if " Rank " not in line)


def test_logs_of_the_same_test_without_host_names_are_not_merged_in_silence(tmp_path: Path) -> None:
    logs_of_nodes(tmp_path / "nameless", "{}.log", NAMELESS)
    logs_of_nodes(tmp_path / "named", "{}.log", LOG.read_text())
    told = "6 logs of the same test without host names went into one run; --each makes one run per log"
    for name, runs in (("nameless", 1), ("named", 6)):
        merged = call(import_command, tmp_path / name, "-o", tmp_path / "merged" / name)
        assert (merged.stdout.count("run file: "), f"{told}: {tmp_path}" in merged.stderr) == (runs, name == "nameless")
        each = call(import_command, "--each", tmp_path / name, "-o", tmp_path / "each" / name)
        assert (each.stdout.count("run file: "), told in each.stderr) == (6, False)
    different = call(import_command, tmp_path / "nameless" / "0.log", DATA / "rccl_mpi.csv", "-o", tmp_path / "x")
    assert "went into one run" not in different.stderr


def test_of_several_files_a_line_each_is_printed_and_patterns_of_names_say_ranks(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("abci.log", "osu.log", "other.log")]
    for path in files:
        path.write_bytes((LOG if path.stem == "other" else DATA / "osu_nccl_full.txt").read_bytes())
    ranks = f"{tmp_path}/ab*=2,osu*=8,*=4"
    result = call(import_command, *files, "--ranks", ranks, "-o", tmp_path / "runs")
    lines = [line for line in result.stdout.splitlines() if not line.startswith("run file: ")]
    assert [line.split(",")[1] for line in lines] == [" 2 ranks", " 8 ranks", " 4 ranks"]
    assert lines[2].startswith(f"{files[2]}: allreduce, 4 ranks, 4 x NVIDIA H100 80GB HBM3, best ")
    every = call(import_command, *files, "--ranks", ranks, "-v", "-o", tmp_path / "all").stdout
    assert ("reported mean" in every, " ok" in every) == (True, False)
    for words, why in (
        ("x*=2", "matches none"),
        ("x", "is impossible; give"),
        ("=2", "is impossible"),
        ("2,", "is imp"),
    ):
        assert why in refusal(call(import_command, *files, "--ranks", words, "-o", tmp_path / "none")), words


def test_imported_logs_make_a_fleet_of_nodes_named_by_host_file_or_folder(tmp_path: Path) -> None:
    kinds = {"hosts": ("{}.log", LOG.read_text()), "files": ("n{}.log", NAMELESS), "folders": ("n{}/all.log", NAMELESS)}
    for kind, (name, text) in kinds.items():
        logs_of_nodes(tmp_path / kind, name, text)
        runs = tmp_path / "runs" / kind
        assert call(import_command, "--each", tmp_path / kind, "-o", runs).exit_code == 0
        assert sorted(path.name for path in runs.iterdir()) == [f"n{node}" for node in range(6)], kind
        fleet = call(check_command, "--fleet", runs, "--json", "-").stdout
        nodes = {row["node"] for row in json.loads(fleet)["outliers"]}
        assert nodes == {"n3"}, kind
    for test in ("a", "b"):
        (tmp_path / f"{test}.log").write_bytes(LOG.read_bytes())
    call(import_command, "--each", tmp_path / "a.log", tmp_path / "b.log", "-o", tmp_path / "two")
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == ["node07", "node07-b"]


def test_other_commands_take_an_import(tmp_path: Path) -> None:
    for name in (LOG.name, "nccl_tests_several_tests.txt"):
        (folder := tmp_path / name).mkdir()
        run = imported(folder, DATA / name)
        assert "compared with the models of " in call(diagnose_command, run).stdout, name
        named = call(diagnose_command, run, "--on", "dgx-h100")
        assert named.exit_code == 0, name
        drawn = call(plot_command, run, "-o", folder / "figures", "--format", "svg", "--view", "latency")
        assert drawn.exit_code == 0, drawn.output
        fitted = call(predict_command, "--fit", run)
        assert fitted.exit_code == 0, name
        assert ("a single curve needs 4 sizes" in fitted.stdout) == (name != LOG.name)
        if name == LOG.name:  # the point of importing: four H100 of a DGX
            assert named.stdout.startswith("collbench: OK ")
        else:  # where nccl-tests rounds sizes down, it prints some of no bytes
            assert any(result.case.nbytes == 0 for result in read(run).results)
            assert " 1 KiB" in named.stdout
            assert " 0 B" not in named.stdout


def test_an_export_goes_to_stdout_or_a_file(tmp_path: Path) -> None:
    run = imported(tmp_path, LOG)
    text = call(export_command, run, "--to", "nccl-tests").stdout
    assert [line.split() for line in text.splitlines() if line[0] != "#"] == [
        line.split() for line in LOG.read_text().splitlines() if line[0] != "#"
    ]
    result = call(export_command, run, "--to", "nccl-tests", "-o", tmp_path / "log.txt")
    assert result.stdout == f"file: {tmp_path / 'log.txt'}\n"
    assert (tmp_path / "log.txt").read_text() == text
    first = json.loads(call(export_command, run, "--to", "nccl-tests-json").stdout)["results"][0]
    assert first["out_of_place"]["time"] == 12.9
    assert "choose from: nccl-tests-json, csv, nccl-tests" in refusal(call(export_command, run, "--to", "osu"))
    failed = call(export_command, run, "--to", "csv", "-o", "/nowhere/file")
    assert "cannot write /nowhere/file" in refusal(failed, status=1)
