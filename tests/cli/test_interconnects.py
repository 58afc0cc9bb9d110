"""`collbench predict A,B,...` and `compare` of different machines: who is fastest from where on."""

import csv
import io
import json
import re
from pathlib import Path

from collbench.results import Failed, Prediction, Reported
from collbench.runfile.store import read
from tests.commands.compare.test_command import compare, sampled
from tests.commands.conftest import write_run
from tests.conftest import ROOT, Command, case
from tools.readme import BLOCK, printed

THREE = "dgx-h100,hgx-h200,ethernet-100g-tcp"
FEW = ("-b", "8", "-e", "1G", "-f", "256")
EPYC, XEON = (str(ROOT / "results" / name) for name in ("cpu-2-ranks-epyc", "cpu-2-ranks"))


def told(here: Command, *words: str, **variables: str) -> str:
    """What a prediction prints."""
    done = here("predict", *words, *FEW, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_several_systems_are_one_table_with_all_sizes_and_a_verdict(here: Command, tmp_path: Path) -> None:
    """Every system in every size, what each is, and sentences on who wins; nothing is stored.

    All have the largest own number of ranks that all can have: Ethernet of 8 ranks would be one node without any.
    """
    done = here("predict", THREE, *FEW)
    for name in THREE.split(","):
        assert re.search(rf"^{name} +predicted: ", done.stdout, re.MULTILINE)
        assert len(re.findall(rf"^.* {name} +[\d.]+ [num]?s", done.stdout, re.MULTILINE)) == 4
    assert re.findall(r"^ *(\d+ \w+)  ", done.stdout, re.MULTILINE) == ["8 B", "2 KiB", "512 KiB", "128 MiB"]
    assert re.search(
        r"^answer: should be fastest: likely dgx-h100 or hgx-h200 \(not distinguishable\) .*, by [\d.]+x .. [\d.]+x;",
        done.stdout,
    )
    assert "ethernet-100g-tcp should lose to dgx-h100 at every size: " in done.stdout
    assert "the bands overlap at 8 B" in done.stdout
    assert "allreduce, float, sum, 16 ranks" in done.stdout
    assert done.stdout.count("2 nodes of 8 GPUs") == 3
    assert "16 ranks on each" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_times_are_those_that_predict_prints_of_one_system(here: Command, tmp_path: Path) -> None:
    """In JSON and, with nothing else on standard output, in CSV."""
    (found,) = json.loads(told(here, THREE, "--json", "--out", "kept"))["tables"]
    for name in THREE.split(","):
        told(here, name, "--nodes", "2", "--no-plot", "--out", name)
        alone = [(row.case.nbytes, row.seconds) for row in read(tmp_path / name).results if isinstance(row, Prediction)]
        assert [(row["nbytes"], row["seconds"]) for row in found["rows"] if row["interconnect"] == name] == alone
    names = ("interconnect", "nbytes", "fastest", "seconds")
    lines = [[row[name] for name in names] for row in csv.DictReader(io.StringIO(told(here, THREE, "--csv")))]
    assert lines == [[str(row[name]) for name in names] for row in found["rows"]]
    assert len(lines) == 12
    assert [one["origin"] for one in found["interconnects"]] == ["predicted"] * 3
    assert found["verdict"][0].startswith("should be fastest: ")


def test_a_run_is_compared_with_a_prediction_that_was_kept(here: Command, tmp_path: Path) -> None:
    """By compare; predict takes systems, and names what they are."""
    log = [
        Reported(case(nbytes=nbytes, ranks=8), "nccl", "gpu", 1e-5 + nbytes / 1e10, "mean of 20")
        for nbytes in (1024, 2**20)
    ]
    write_run(tmp_path / "log", *log, imported={"tool": "nccl-tests"}, topology={"platform": "gpu", "name": "a box"})
    words = ("--ranks", "8", "-b", "1K", "-e", "1M", "-f", "1024", "--no-plot", "--out", "told")
    assert here("predict", "dgx-h100", *words).returncode == 0
    done = here("compare", "log", "told")
    assert re.search(r"^log +imported: a box$", done.stdout, re.MULTILINE)
    assert "allreduce, float, sum, 8 ranks" in done.stdout
    assert re.findall(r"^ *(\d+ \w?i?B)  [ *?] log", done.stdout, re.MULTILINE) == ["1 KiB", "1 MiB"]
    for words, said in (("dgx-h100,log", "unknown system 'log'"), ("dgx-h100,dgx-h100", "names a system twice")):
        done = here("predict", words)
        assert (done.returncode, said in done.stderr, done.stderr.count("\n")) == (2, True, 1), done.stderr


def test_compare_of_two_machines_says_who_is_fastest_too() -> None:
    """In addition to what it says of rows, of those that were chosen; of runs on one machine it does not."""
    done = compare(EPYC, XEON, "--only", "mpi")
    assert done.return_value == 0
    assert "rows: " in done.stdout
    assert "cpu-2-ranks-epyc 128 KiB" in done.stdout
    alike = compare(XEON, ROOT / "results" / "cpu-2-ranks-libraries", "--only", "mpi")
    assert "fastest" not in alike.stdout
    (found,) = json.loads(compare(EPYC, XEON, "--only", "mpi,1K..1M", "--json").stdout)["interconnects"]
    assert {row["nbytes"] for row in found["rows"]} == {2048, 8192, 32768, 131072, 524288}
    assert {row["implementation"] for row in found["rows"]} == {"mpi"}


def test_a_run_and_a_prediction_can_be_compared_in_this_way_alone(here: Command, tmp_path: Path) -> None:
    """They have no samples in common, and a cut-off run is called so."""
    words = ("--ranks", "2", "-b", "1K", "-e", "64K", "-f", "64", "--no-plot", "--out", "told")
    assert here("predict", "dgx-h100", *words).returncode == 0
    sockets = {"platform": "cpu", "ranks": 2, "name": "a box", "sockets": [{"name": "Xeon"}]}
    measured = [sampled(nbytes=nbytes) for nbytes in (1024, 65536)]
    write_run(tmp_path / "mine", *measured, Failed(case(nbytes=8), "mpi", "cpu", "died"), end=False, topology=sockets)
    done = here("compare", "mine", "told")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^mine +measured: a box$", done.stdout, re.MULTILINE)
    assert re.search(r"^told +predicted: DGX H100, 2 GPUs$", done.stdout, re.MULTILINE)
    assert "note: mine: the run was cut off" in done.stdout
    assert here("compare", "mine", "told", "--gate").returncode == 4


def test_the_page_shows_what_the_command_prints() -> None:
    """Word for word; `python -m tools.readme` writes it anew."""
    blocks = BLOCK.findall((ROOT / "docs" / "model.md").read_text())
    assert blocks
    for arguments, block in blocks:
        assert printed(arguments) == block
