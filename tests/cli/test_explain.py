"""`collbench explain` as a user meets it: real ranks, real kernels with their log."""

import json
import shutil
from pathlib import Path

import pytest

from collbench.implementations import choose
from collbench.measurement import Explanation
from collbench.runs.file import read
from collbench.tracks import ADDED, WAITED
from tests.conftest import ROOT, Command, carried_out, of_a_user

HAND_WRITTEN = choose("ladder", "cpu")


def test_every_rung_is_explained(here: Command, tmp_path: Path) -> None:
    """A row, a timeline and tracks of both ranks each; the library has a time alone."""
    done = here("explain", "--on", "cpu", "--out", "out", "-b", "16K")
    assert done.returncode == 0, done.stdout + done.stderr
    results = {
        result.implementation: result for result in read(tmp_path / "out").results if isinstance(result, Explanation)
    }
    assert set(results) == set(choose("all", "cpu"))
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line and line[0] not in " \n"}
    for name in HAND_WRITTEN:
        assert {track.rank for track in results[name].tracks} == {0, 1}
        assert rows[name].count("%") == 6
        assert (tmp_path / "out" / f"timeline-allreduce-float-sum-16384B-{name}.png").stat().st_size > 5000
    assert "cannot be looked into" in rows["mpi"]
    assert (tmp_path / "out" / "shares-allreduce-float-sum-16384B.png").exists()
    names = {event["args"]["name"] for event in events(tmp_path) if event["ph"] == "M"}
    assert names >= {f"{name} allreduce 16 KiB rank {rank}" for name in HAND_WRITTEN for rank in (0, 1)}


def events(folder: Path) -> list[dict[str, object]]:
    """What Perfetto would read, as its format wants it."""
    found = json.loads((folder / "out" / "trace.json").read_text())["traceEvents"]
    for row in found:
        assert isinstance(row["pid"], int)
        assert isinstance(row["tid"], int)
        assert row["ph"] == "M" or (row["ts"] >= 0 and row["dur"] >= 0)
    return found  # type: ignore[no-any-return]


DAWDLE = 0.03  # seconds: so long that nothing else on this machine is taken for it
TIMELINE = "timeline-allreduce-float-sum-1024B-two-shot.svg"


@pytest.fixture(scope="module")
def dawdling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a run is of which rank 1 dawdles over its adding."""
    folder = tmp_path_factory.mktemp("dawdling")
    shutil.copytree(ROOT / "kernels", folder / "kernels")
    file = folder / "kernels" / "direct.cu"
    place = "  stamp_block(world, Phase::ADDED);\n  call.meet(1);\n"
    text = file.read_text()
    assert text.count(place) == 3
    until = f"world.rank() == 1 && shared_clock() - since < {DAWDLE * 1e9:.0f}"
    file.write_text(text.replace(place, f"  for (u64 since = shared_clock(); {until};) {{}}\n" + place))
    options = ("--impl", "two-shot", "--out", "out", "-b", "1K", "--format", "svg")
    variables = of_a_user() | {"COLLBENCH_KERNELS": str(folder / "kernels")}
    done = carried_out(folder, variables, "explain", "--on", "cpu", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out"


def test_a_rank_that_is_slow_shows_in_the_others_waiting(dawdling: Path) -> None:
    """That is where its time goes, and rank 0 waits for it."""
    (result,) = read(dawdling).results
    assert isinstance(result, Explanation)
    quick, slow = result.tracks
    assert slow.spent[ADDED] > 0.97 * DAWDLE
    assert quick.spent[WAITED] > 0.8 * DAWDLE
    assert quick.spent[ADDED] < 0.5 * DAWDLE
    assert result.seconds > 0.97 * DAWDLE
    assert (dawdling / TIMELINE).exists()


def test_an_explanation_can_be_drawn_again(dawdling: Path, here: Command, tmp_path: Path) -> None:
    """From its run file, as any other."""
    done = here("plot", str(dawdling), "-o", "again", "--format", "svg")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again" / TIMELINE).read_bytes() == (dawdling / TIMELINE).read_bytes()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--impl", "nonsense"), "unknown implementation"),
        (("-b", "lots"), "lots"),
        (("--spin", "slow"), "unknown --spin"),
    ],
)
def test_wrong_words_are_one_line(here: Command, words: tuple[str, ...], reason: str) -> None:
    """With the choices, and nothing left behind."""
    done = here("explain", "--on", "cpu", *words)
    assert done.returncode == 2
    assert reason in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
