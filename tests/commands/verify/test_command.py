"""`collbench verify` and `explain`: every combination is in the table, and a slow rank shows where others wait."""

import json
import re
import shutil
from pathlib import Path

import pytest

from collbench.algorithms import choose, implementations
from collbench.collectives import COLLECTIVES
from collbench.results import Explanation
from collbench.results.collectives import ADDED, WAITED
from collbench.runfile.store import read
from tests.conftest import ROOT, Command

VERIFY = ("verify", "--on", "cpu")
FEW = ("mpi", "ring-flags")


@pytest.mark.parametrize("everything", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.timeout(600)  # every type or collective, compiled first where the cache is empty
def test_every_combination_is_in_the_matrix(here: Command, everything: bool) -> None:
    dtypes = ("-d", "float,half") if everything else ("--impl", ",".join(FEW))
    done = here(*VERIFY, *dtypes)
    assert done.returncode == 0, done.stdout + done.stderr
    cells: dict[tuple[str, str], str] = {}
    for block in done.stdout.split("\n\n")[:-1]:
        heads, *rows = (line.split() for line in block.splitlines())
        cells |= {(row[0], head): cell for row in rows for head, cell in zip(heads, row[1:], strict=True)}
    for name in choose("all", "cpu") if everything else FEW:
        for collective in COLLECTIVES:
            there = collective in implementations()[name].collectives
            assert cells.get((name, collective), "-") == ("ok" if there else "-")
    assert "0 wrong, 0 failed" in done.stdout
    assert "\n4 ranks on" in f"\n{done.stderr}"
    assert "verify --races" in done.stdout, "memory order was not tried"


def test_a_broken_kernel_is_wrong_in_the_matrix_and_in_detail(here: Command, broken_ring: Path) -> None:
    words = ("--impl", "mpi,ring-flags", "--op", "allreduce")
    done = here(*VERIFY, *words, COLLBENCH_KERNELS=str(broken_ring))
    assert done.returncode == 1, done.stdout + done.stderr
    *summary, failures = done.stdout.split("-d all --redop all checks all types and reductions\n")
    assert re.search(r"^ring-flags +WRONG$", summary[0], re.MULTILINE)
    assert re.search(r"^mpi +ok$", summary[0], re.MULTILINE)
    assert len(re.findall(r"ring-flags +WRONG: rank \d", failures)) == 3
    assert re.search(r"\d more of ring-flags", failures)
    assert "mpi" not in failures


def explained(
    here: Command, folder: Path, names: tuple[str, ...], *words: str, **variables: str
) -> dict[str, Explanation]:
    done = here("explain", "--on", "cpu", "--out", "out", *words, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    run = read(folder / "out")
    results = {result.implementation: result for result in run.results if isinstance(result, Explanation)}
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line and line[0] not in " \n"}
    found = json.loads((folder / "out" / "trace.json").read_text())["traceEvents"]
    for row in found:  # as Perfetto's format wants it
        assert isinstance(row["pid"], int)
        assert isinstance(row["tid"], int)
        assert row["ph"] == "M" or (row["ts"] >= 0 and row["dur"] >= 0)
    tracks = {event["args"]["name"].partition(" logged")[0] for event in found if event["ph"] == "M"}
    size = "1 KiB" if "1K" in words else "16 KiB"
    for name in names:
        assert {track.rank for track in results[name].tracks} == {0, 1}, name
        assert re.split("disturbed|logged", rows[name])[0].count("%") == 6, name
        assert {f"{name} allreduce {size} rank {rank}" for rank in (0, 1)} <= tracks
    if "mpi" in results:
        assert "no parts" in rows["mpi"]
    return results


def test_a_rung_is_explained_and_the_library_has_a_time_alone(here: Command, tmp_path: Path) -> None:
    results = explained(here, tmp_path, ("two-shot",), "--impl", "mpi,two-shot", "-b", "16K")
    assert set(results) == {"mpi", "two-shot"}
    assert (tmp_path / "out" / "timeline-allreduce-float-sum-16384B-two-shot.png").stat().st_size > 5000


DAWDLE = 0.03  # seconds: so long that nothing else on this machine is taken for it


@pytest.mark.machine
def test_every_rung_is_explained_and_a_slow_rank_shows_in_the_others_waiting(here: Command, tmp_path: Path) -> None:
    assert set(explained(here, tmp_path, choose("ladder", "cpu"), "-b", "16K")) == set(choose("all", "cpu"))
    shutil.rmtree(tmp_path / "out")
    shutil.copytree(ROOT / "kernels", tmp_path / "kernels")
    file = tmp_path / "kernels" / "direct.cu"
    place = "  stamp_block(world, Phase::ADDED);\n  call.meet(1);\n"
    text = file.read_text()
    assert text.count(place) == 3
    until = f"world.rank() == 1 && shared_clock() - since < {DAWDLE * 1e9:.0f}"
    file.write_text(text.replace(place, f"  for (u64 since = shared_clock(); {until};) {{}}\n" + place))
    words = ("--impl", "two-shot", "-b", "1K")
    result = explained(here, tmp_path, ("two-shot",), *words, COLLBENCH_KERNELS=str(tmp_path / "kernels"))["two-shot"]
    quick, slow = result.tracks
    assert slow.spent[ADDED] > 0.97 * DAWDLE
    assert quick.spent[WAITED] > 0.8 * DAWDLE
    assert quick.spent[ADDED] < 0.5 * DAWDLE
    assert result.seconds > 0.97 * DAWDLE
    name = "timeline-allreduce-float-sum-1024B-two-shot.png"
    assert here("plot", "out", "-o", "again").returncode == 0
    assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
