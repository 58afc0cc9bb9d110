"""What ran, by the library's log: a changed algorithm is named first, and so is what NCCL's table does not have."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from collbench.analysis.compare import compare
from collbench.analysis.comparison import Comparison
from collbench.analysis.diagnose import Diagnosis, diagnose
from collbench.analysis.judgement import Word
from collbench.analysis.machine import RunFacts
from collbench.model.predict import curve
from collbench.plots import curves
from collbench.results import Measurement
from collbench.runfile.schema import Header
from collbench.runfile.store import Run
from collbench.topology import files
from tests.conftest import case, measurement

H100 = files.load("dgx-h100")
HEALTHY = curve(H100, [case(nbytes=2**power, ranks=8) for power in range(3, 34, 2)])
TABLE = {expected.case.nbytes: expected.method for expected in HEALTHY}
KIB, MIB = 2**10, 2**20


def took(row: Measurement, method: str, channels: int | None = None) -> Measurement:
    algorithm, _, protocol = method.partition("/")
    return replace(row, algorithm=algorithm, protocol=protocol, channels=channels, library="NCCL 2.30.4")


def ran(method: str, nbytes: int = KIB, channels: int | None = 4, name: str = "nccl", **changes: Any) -> Measurement:
    return took(measurement(name, nbytes=nbytes, **changes), method, channels)


def run(*rows: Measurement, started: str = "") -> Run:
    return Run(Path("run.jsonl"), Header.from_json({"started": started}), rows, True)


def compared(base: Sequence[Measurement], new: Sequence[Measurement]) -> Comparison:
    return compare(run(*base, started="2025"), run(*new, started="2026"))


def test_a_changed_algorithm_is_the_first_remark_with_the_sizes_that_have_it() -> None:
    sizes = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, MIB]
    after = ["ring/simple", "tree/ll", "ring/simple", "ring/simple", "nvls/simple"]
    unknown = ran("", name="two-shot", channels=None, seconds=(1e-6,))
    base = [*(ran("tree/ll", size) for size in reversed(sizes)), unknown]
    new = [replace(ran(*each), library="NCCL 2.32.3") for each in zip(after, sizes, strict=True)] + [unknown]
    found, silent = compared(base, new), compared([took(row, "") for row in base], new)
    assert found.remarks[:2] == (
        f"nccl at 1 KiB, 16 KiB to 64 KiB ({base[0].case.title}): tree/ll in BASE, ring/simple in NEW",
        f"nccl at 1 MiB ({base[0].case.title}): tree/ll in BASE, nvls/simple in NEW",
    )
    assert [word in found.remarks[-1] for word in ("2.30.4", "2.32.3")] == [True, True]
    assert found.remarks[2:] == silent.remarks
    assert [row.word for row in found.rows] == [row.word for row in silent.rows]


def test_a_change_is_said_of_each_case() -> None:
    one = ran("ring/ll")
    assert compared([one], [one]).remarks == compared([one], [ran("ring/ll", channels=8)]).remarks == ()
    gathered, other = (ran(method, collective="allgather") for method in ("ring/ll", "pat/simple"))
    (remark,) = compared([one, gathered], [one, other]).remarks
    assert remark.startswith("nccl at 1 KiB (allgather, float, 2 ranks): ring/ll in BASE")


def diagnosed(methods: Mapping[int, str], times: float = 1.0, name: str = "nccl") -> Diagnosis:
    """A machine as modelled, on which NCCL takes what its table says but at these sizes."""
    rows = []
    for expected in HEALTHY:
        row = Measurement(expected.case, name, "gpu", 1, (times * expected.seconds,) * 7)
        rows.append(took(row, methods.get(expected.case.nbytes, expected.method)))
    return diagnose(rows, H100, RunFacts({}))


def test_what_nccls_table_does_not_say_is_named_whatever_the_verdict() -> None:
    assert TABLE[128 * KIB] == TABLE[512 * KIB] != "tree/ll"
    for times, word in ((1.0, Word.OK), (30.0, Word.SLOW)):
        found = diagnosed({128 * KIB: "tree/ll", 512 * KIB: "tree/ll"}, times)
        said = f"NCCL chose tree/ll, but its table says {TABLE[128 * KIB]}, at 128 KiB to 512 KiB"
        assert (found.word, found.choices, diagnosed({}, times).choices) == (word, [said], [])
    assert diagnosed({8: "symm/AGxLL_R", 32: "ce", 128: ""}).choices == [], "no table has these, or no log"


def test_a_fast_path_is_not_held_against_the_table_of_plain_nccl() -> None:
    for name in ("nccl@symmetric", "nccl@registered"):
        found = diagnosed({}, 0.5, name)
        assert (found.word, found.choices) == (Word.UNKNOWN, [])
        assert f"{name} has no model" in found.remark
    assert diagnosed({}, name="nccl@iters 100").word is Word.OK, "of a log with several settings"


def test_a_curve_stays_one_where_its_method_changes_and_names_of_paths_stay_apart() -> None:
    rows = []
    for nbytes, method in ((KIB, "tree/ll"), (MIB, "ring/simple"), (16 * MIB, "nvls/simple")):
        rows += [ran(method, nbytes, name=name) for name in ("nccl", "nccl@symmetric")]
    ((_, figure), *_) = curves.figures([run(*rows)])
    legend = [text.get_text() for text in figure.legends[0].get_texts() if "nccl" in text.get_text()]
    assert sorted(legend) == ["nccl: 2.30.4", "nccl@symmetric: 2.30.4"]
