"""`collbench predict A,B,...` and `compare` of different machines: who is fastest from where on."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

from collbench.cli._columns import wrapped
from collbench.cli.compare import command as compare_command
from collbench.cli.predict import command as predict_command
from collbench.measurement import Failed, Prediction, Reported
from collbench.runs.file import read
from collbench.topology import files
from tests.cli.test_compare import compare, sampled, write
from tests.conftest import ROOT, Command, case
from tools.readme import BLOCK, printed

THREE = "dgx-h100,hgx-h200,ethernet-100g-tcp"
FEW = ("-b", "8", "-e", "1G", "-f", "256")
EPYC, XEON = (str(ROOT / "results" / name) for name in ("cpu-2-ranks-epyc", "cpu-2-ranks"))


def rows(text: str) -> list[str]:
    """Of the table, those of its body."""
    return [line for line in text.splitlines() if re.search(r"\d [num]?s\b", line) and ":" not in line.split("  ")[0]]


def test_several_systems_are_one_table_with_all_sizes_and_a_verdict(here: Command) -> None:
    """Every system in every size, what each is, and sentences on who wins."""
    done = here("predict", THREE, *FEW)
    assert done.returncode == 0, done.stderr
    for name in THREE.split(","):
        assert re.search(rf"^{name} +predicted: ", done.stdout, re.MULTILINE)
        assert len(re.findall(rf"^.* {name} +[\d.]+ [num]?s", done.stdout, re.MULTILINE)) == 4
    assert re.findall(r"^ *(\d+ \w+)  ", done.stdout, re.MULTILINE) == ["8 B", "2 KiB", "512 KiB", "128 MiB"]
    assert re.search(r"^should be fastest: likely dgx-h100 or hgx-h200 \(not told apart\)", done.stdout, re.MULTILINE)
    assert "ethernet-100g-tcp should lose to dgx-h100 at every size: " in done.stdout
    assert "the bands overlap at 8 B" in done.stdout


def test_all_have_the_same_number_of_ranks_and_it_is_said_which(here: Command) -> None:
    """The largest own number that all can have: Ethernet of 8 ranks would be one node without any."""
    done = here("predict", THREE, *FEW)
    assert "allreduce, float, sum, 16 ranks" in done.stdout
    assert done.stdout.count("2 nodes of 8 GPUs") == 3
    assert "16 ranks on each" in done.stderr


def test_what_cannot_grow_sets_the_number_of_ranks(here: Command, tmp_path: Path) -> None:
    """A box without network cards has no 16 ranks, so the others have as many as it."""
    text = 'name = "A box"\n[gpu]\narch = "sm80"\n[node]\ngpus = 4\nfabric = "nvswitch"\n'
    (tmp_path / "box.toml").write_text(text)
    done = here("predict", "dgx-h100,box.toml,ethernet-100g-tcp", *FEW)
    assert done.returncode == 0, done.stderr
    assert "allreduce, float, sum, 4 ranks" in done.stdout
    assert "4 ranks on each" in done.stderr


def test_a_star_is_for_who_surely_wins_and_a_question_mark_for_who_may(here: Command) -> None:
    """As the records say it."""
    marks = {"surely": "*", "likely": "?", "perhaps": "?", "": " "}
    done = here("predict", "dgx-h100,ethernet-100g-tcp,hgx-h200", *FEW, "--ranks", "64")
    told = here("predict", "dgx-h100,ethernet-100g-tcp", *FEW, "--ranks", "64")
    for shown, words in ((done, "dgx-h100,ethernet-100g-tcp,hgx-h200"), (told, "dgx-h100,ethernet-100g-tcp")):
        (found,) = json.loads(here("predict", words, *FEW, "--ranks", "64", "--format", "json").stdout)["tables"]
        assert {row["fastest"] for row in found["rows"]} > {""}
        lines = [line for line in shown.stdout.splitlines() if re.search(r"  [ *?] [a-z0-9-]+ +[\d.]+ [num]?s", line)]
        for line, row in zip(lines, found["rows"], strict=True):
            assert f"  {marks[row['fastest']]} {row['interconnect']} " in line
    assert " * dgx-h100" in told.stdout
    assert " ? dgx-h100" in told.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--ranks", "8"), ["allreduce, float, sum, 8 ranks", "DGX H100, 8 GPUs", "GB200 NVL72, 8 GPUs"]),
        (("--ranks", "144"), ["144 ranks", "DGX H100, 18 nodes of 8 GPUs", "GB200 NVL72, 2 nodes of 72 GPUs"]),
        (
            ("--nodes", "2"),
            ["note: not the same number of ranks: dgx-h100 16, gb200-nvl72 144", "allreduce, float, sum\n"],
        ),
        (("--nodes", "3", "--ranks-per-node", "4"), ["12 ranks", "DGX H100, 3 nodes of 4 GPUs"]),
    ],
)
def test_ranks_and_nodes_are_as_asked_for_on_every_system(
    here: Command, words: tuple[str, ...], told: list[str]
) -> None:
    """And where they differ, that is said."""
    done = here("predict", "dgx-h100,gb200-nvl72", *FEW, *words)
    assert done.returncode == 0, done.stderr
    assert all(text in done.stdout for text in told), done.stdout


def test_times_are_those_that_predict_prints_of_one_system(here: Command, tmp_path: Path) -> None:
    """The table has no model of its own."""
    done = here("predict", THREE, *FEW, "--format", "json")
    (found,) = json.loads(done.stdout)["tables"]
    for name in THREE.split(","):
        words = ("--nodes", "2", *FEW, "--no-plot", "--out", name)
        assert here("predict", name, *words).returncode == 0
        alone = [(row.case.nbytes, row.seconds) for row in read(tmp_path / name).results if isinstance(row, Prediction)]
        assert [(row["nbytes"], row["seconds"]) for row in found["rows"] if row["interconnect"] == name] == alone


def test_csv_and_json_hold_the_same_rows_and_nothing_else_is_on_stdout(here: Command) -> None:
    tabled = csv.DictReader(io.StringIO(here("predict", THREE, *FEW, "--format", "csv").stdout))
    lines = [(row["interconnect"], row["nbytes"], row["fastest"], row["seconds"]) for row in tabled]
    (found,) = json.loads(here("predict", THREE, *FEW, "--format", "json", "--out", "kept").stdout)["tables"]
    assert lines == [
        (row["interconnect"], str(row["nbytes"]), row["fastest"], str(row["seconds"])) for row in found["rows"]
    ]
    assert len(lines) == 12
    assert [one["origin"] for one in found["interconnects"]] == ["predicted"] * 3
    assert found["verdict"][0].startswith("should be fastest: ")


def test_a_measured_and_an_imported_run_among_systems_are_called_so(here: Command, tmp_path: Path) -> None:
    """And decide sizes, type and ranks of what is predicted beside them."""
    log = [
        Reported(case(nbytes=nbytes, ranks=8), "nccl", "gpu", 1e-5 + nbytes / 1e10, "mean of 20")
        for nbytes in (1024, 2**20)
    ]
    write(tmp_path / "log", *log, imported={"tool": "nccl-tests"})
    done = here("predict", "dgx-h100,log")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^log +imported: a log of nccl-tests$", done.stdout, re.MULTILINE)
    assert "allreduce, float, sum, 8 ranks" in done.stdout
    assert [word for word in ("1 KiB", "1 MiB") if word in done.stdout] == ["1 KiB", "1 MiB"]
    assert "8 B" not in done.stdout
    done = here("predict", f"dgx-h100,{XEON}", "--op", "allreduce", "-b", "8", "-e", "8")
    assert re.search(r"^cpu-2-ranks +measured: 2 ranks on ", done.stdout, re.MULTILINE)
    assert re.search(r"^ +\* cpu-2-ranks .* mpi: MPICH", done.stdout, re.MULTILINE)
    assert "DGX H100, 2 GPUs" in done.stdout


def test_a_file_of_ones_own_is_one_of_several(here: Command, tmp_path: Path) -> None:
    """By the name of the file; two files of one name by their paths."""
    text = (files.FOLDER / "dgx-h100.toml").read_text()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.toml").write_text(text.replace("DGX H100", folder))
    assert re.search(r"^mine +predicted: a", here("predict", "dgx-h100,a/mine.toml", *FEW).stdout, re.MULTILINE)
    both = here("predict", "a/mine.toml,b/mine.toml", *FEW)
    assert re.search(r"^b/mine.toml +predicted: b", both.stdout, re.MULTILINE)


def test_nothing_is_stored_unless_a_folder_is_named(here: Command, tmp_path: Path) -> None:
    """Then a run file for each, which other commands read."""
    assert here("predict", THREE, *FEW).returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert here("predict", THREE, *FEW, "--out", "kept", "--no-plot").returncode == 0
    assert {path.name for path in (tmp_path / "kept").iterdir()} == set(THREE.split(","))
    again = here("compare", *(f"kept/{name}" for name in THREE.split(",")))
    assert again.returncode == 0, again.stderr
    assert "ethernet-100g-tcp should lose to dgx-h100" in again.stdout


@pytest.mark.parametrize(("columns", "parts"), [("50", []), ("80", ["band"]), ("120", ["band", "algorithm"])])
def test_the_table_fits_and_says_more_where_there_is_room(here: Command, columns: str, parts: list[str]) -> None:
    """No row is broken; the algorithm goes first, then the band."""
    done = here("predict", THREE, *FEW, COLUMNS=columns)
    (heading,) = [line for line in done.stdout.splitlines() if "vs first" in line]
    assert [word for word in ("band", "algorithm") if word in heading] == parts
    assert all(len(line) <= int(columns) for line in rows(done.stdout))
    assert len(rows(done.stdout)) == 12


@pytest.mark.parametrize("width", [50, 80])
def test_sentences_are_broken_between_words_only(width: int) -> None:
    """Names keep their hyphens."""
    sentence = "ethernet-100g-tcp should lose to dgx-h100 at every size: 0.36x at 8 B; the bands overlap at 8 B"
    broken = wrapped(sentence, width).split("\n")
    assert all(len(line) <= width for line in broken)
    assert " ".join(line.strip() for line in broken) == sentence
    assert len(broken) > 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("dgx-h100,moon",), "unknown system 'moon'; choose from: .*dgx-h100.*, FILE.toml, the path of a run"),
        (("dgx-h100,",), "unknown system ''"),
        (("dgx-h100,dgx-h100",), "dgx-h100 is named twice"),
        (("dgx-h100,hgx-h200", "--ranks", "12"), "--ranks 12 is less than the 16 GPUs"),
        (("dgx-h100,hgx-h200", "--impl", "ring-hots"), "unknown implementation 'ring-hots'"),
        (("dgx-h100,hgx-h200", "--impl", "ring-host"), "which is a bound and no expectation"),
        (("dgx-h100,empty",), "no results"),
        (("dgx-h100", "--format", "csv"), "--format csv is for several systems"),
        (("dgx-h100,hgx-h200", "--ranks", "8", "--what-if", "ecmp"), "nothing between nodes here"),
    ],
)
def test_wrong_words_are_one_line_and_exit_2(
    here: Command, tmp_path: Path, words: tuple[str, ...], complaint: str
) -> None:
    write(tmp_path / "empty")
    done = here("predict", *words)
    assert done.returncode == 2
    assert re.search(complaint, done.stderr), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_what_has_no_time_is_left_out_with_its_reason(here: Command, tmp_path: Path) -> None:
    """Two are enough for a table; the third is not forgotten."""
    write(tmp_path / "other", sampled("nccl", collective="broadcast", nbytes=8))
    done = here("predict", f"dgx-h100,hgx-h200,{tmp_path / 'other'}", "--op", "allreduce", "--ranks", "8", *FEW)
    assert done.returncode == 0, done.stderr
    assert "left out: other: no time of a case and size that another one has" in done.stderr


def test_under_a_launcher_one_process_speaks(here: Command) -> None:
    assert here("predict", THREE, *FEW, PMI_RANK="1", PMI_SIZE="2").stdout == ""
    assert "fastest" in here("predict", THREE, *FEW, PMI_RANK="0", PMI_SIZE="2").stdout


def test_the_help_tells_of_several_systems(here: Command) -> None:
    assert "dgx-h100,ethernet-100g-tcp" in here("predict", "--help").stdout
    assert "interconnects" in here("compare", "--help").stdout
    assert predict_command.params
    assert compare_command.params


def test_compare_of_two_machines_says_who_is_fastest_too() -> None:
    """In addition to what it says of rows; of runs on one machine it does not."""
    done = compare(EPYC, XEON, "--only", "mpi")
    assert done.return_value == 0
    assert "rows: " in done.stdout
    assert "between 8 KiB and 128 KiB the fastest changes from cpu-2-ranks to cpu-2-ranks-epyc" in done.stdout
    alike = compare(XEON, ROOT / "results" / "cpu-2-ranks-libraries", "--only", "mpi")
    assert "fastest" not in alike.stdout


def test_only_chooses_what_is_held_against_each_other() -> None:
    told = compare(EPYC, XEON, "--only", "mpi,1K..1M", "--format", "json").stdout
    (found,) = json.loads(told)["interconnects"]
    assert {row["nbytes"] for row in found["rows"]} == {2048, 8192, 32768, 131072, 524288}
    assert {row["implementation"] for row in found["rows"]} == {"mpi"}


def test_a_run_and_a_prediction_can_be_compared_in_this_way_alone(here: Command, tmp_path: Path) -> None:
    """They have no samples in common, and a cut-off run is called so."""
    words = ("--ranks", "2", "-b", "1K", "-e", "64K", "-f", "64", "--no-plot", "--out", "told")
    assert here("predict", "dgx-h100", *words).returncode == 0
    sockets = {"platform": "cpu", "ranks": 2, "name": "a box", "sockets": [{"name": "Xeon"}]}
    measured = [sampled(nbytes=nbytes) for nbytes in (1024, 65536)]
    write(tmp_path / "mine", *measured, Failed(case(nbytes=8), "mpi", "cpu", "died"), end=False, topology=sockets)
    done = here("compare", "mine", "told")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^mine +measured: a box$", done.stdout, re.MULTILINE)
    assert re.search(r"^told +predicted: DGX H100, 2 GPUs$", done.stdout, re.MULTILINE)
    assert "note: mine: the run was cut off" in done.stdout
    assert here("compare", "mine", "told", "--gate").returncode == 4


@pytest.mark.parametrize(
    ("arguments", "block"), BLOCK.findall((ROOT / "docs" / "model.md").read_text()), ids=lambda text: text[:30]
)
def test_the_page_shows_what_the_command_prints(arguments: str, block: str) -> None:
    """Word for word; `python -m tools.readme` writes it anew."""
    assert printed(arguments) == block


def test_the_page_has_an_example() -> None:
    assert BLOCK.findall((ROOT / "docs" / "model.md").read_text())
