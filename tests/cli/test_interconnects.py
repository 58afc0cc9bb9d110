"""`collbench predict A,B,...` and `compare` of different machines: who is fastest from where on."""

import csv
import io
import json
import re
from pathlib import Path

from collbench.results import Failed, Prediction
from collbench.runfile.store import read
from tests.commands.compare.test_command import compare, sampled
from tests.commands.conftest import write_run
from tests.conftest import ROOT, Command, case

THREE = "dgx-h100,hgx-h200,ethernet-100g-tcp"
FEW = ("-b", "8", "-e", "1G", "-f", "256")
EPYC, XEON = (str(ROOT / "results" / name) for name in ("cpu-2-ranks-epyc", "cpu-2-ranks"))


def told(here: Command, *words: str, **variables: str) -> str:
    done = here("predict", *words, *FEW, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_several_systems_have_as_many_ranks_as_all_can_have_and_a_verdict(here: Command, tmp_path: Path) -> None:
    done = here("predict", THREE, *FEW)
    for name in THREE.split(","):
        assert len(re.findall(rf"^.* {name} +[\d.]+ [num]?s", done.stdout, re.MULTILINE)) == 4
    assert re.search(
        r"\nanswer: should be fastest: likely dgx-h100 or hgx-h200 \(not distinguishable\) .*, by [\d.]+x .. [\d.]+x;",
        done.stdout,
    )
    assert done.stdout.count("2 nodes of 8 GPUs") == 3
    assert "16 ranks on each" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_times_are_those_that_predict_prints_of_one_system(here: Command, tmp_path: Path) -> None:
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


def test_compare_of_two_machines_says_who_is_fastest_too() -> None:
    done = compare(EPYC, XEON, "--only", "mpi")
    assert done.return_value == 0
    assert done.stdout.startswith("answer: ")
    assert "predict" not in done.stdout + done.stderr
    assert "rows: " in done.stdout
    assert "cpu-2-ranks-epyc 128 KiB" in done.stdout
    alike = compare(XEON, ROOT / "results" / "cpu-2-ranks-libraries", "--only", "mpi")
    assert "fastest" not in alike.stdout
    (found,) = json.loads(compare(EPYC, XEON, "--only", "mpi,1K..1M", "--json").stdout)["interconnects"]
    assert {row["nbytes"] for row in found["rows"]} == {2048, 8192, 32768, 131072, 524288}
    assert {row["implementation"] for row in found["rows"]} == {"mpi"}


def test_a_run_and_a_prediction_can_be_compared_in_this_way_alone(here: Command, tmp_path: Path) -> None:
    words = ("--ranks", "2", "-b", "1K", "-e", "64K", "-f", "64", "--no-plot", "--out", "told")
    assert here("predict", "dgx-h100", *words).returncode == 0
    sockets = {"platform": "cpu", "ranks": 2, "name": "a box", "sockets": [{"name": "Xeon"}]}
    measured = [sampled(nbytes=nbytes) for nbytes in (1024, 65536)]
    write_run(tmp_path / "mine", *measured, Failed(case(nbytes=8), "mpi", "cpu", "died"), status=None, topology=sockets)
    done = here("compare", "mine", "told")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^mine +measured: a box$", done.stdout, re.MULTILINE)
    assert re.search(r"^told +predicted: DGX H100, 2 GPUs$", done.stdout, re.MULTILINE)
    assert "note: mine: the run was cut off" in done.stdout
    assert here("compare", "mine", "told", "--gate").returncode == 4
