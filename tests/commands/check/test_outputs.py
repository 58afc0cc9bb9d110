"""What other programs read of a verdict, by the rules of their formats, whatever a topology is called."""

import errno
import json
import math
import os
import re
import shutil
import stat
import subprocess
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

import pytest

from collbench.analysis.judgement import EXITS, Judgement, Sight, Word
from collbench.cli.verdicts import junit, line_of, write_verdict
from collbench.commands.check import outputs as verdicts
from collbench.commands.check.judge import CheckedCurve, CheckedSize, CheckResult
from collbench.commands.check.library import check
from collbench.datatypes import DATATYPES
from collbench.errors import StorageError
from collbench.model.predict import curve as predicted
from collbench.results import Mismatch, Note
from collbench.results.facts import Sharing
from collbench.runfile.schema import Header
from collbench.runfile.store import Run
from collbench.stats import Estimate
from collbench.topology.files import load
from collbench.units import format_size, printable
from tests.conftest import case, measurement

HOSTILE = "| FAIL |\"'=<b>&`*_[x](y)\\\n\x00\x1b\u2028\ud800\uffff $(id) https://a.example WWW.b.example c@d.example é"
KIB, MIB, GIB = 2**10, 2**20, 2**30


def size(
    nbytes: int = GIB, seconds: float = 4e-3, share: float = 1.0, name: str = "nccl", dtype: str = "float"
) -> CheckedSize:
    """A size that takes so long, and `share` times what was expected."""
    row = measurement(name, (seconds,) * 7, nbytes=nbytes, ranks=8, dtype=DATATYPES[dtype])
    word = Word.SLOW if share > LIMIT else Word.UNKNOWN if math.isnan(share) else Word.FAST if share < 0.5 else Word.OK
    what, ratio = f"{row.case.title}, {format_size(nbytes)}, {name}", Estimate(share)
    judgement = Judgement(what, "", word, "", ratio, limit=math.nan if math.isnan(share) else LIMIT)
    return CheckedSize(row, seconds / share, judgement, 3)


LIMIT = 1.1
H100 = load("dgx-h100")


@pytest.mark.parametrize("times", [0.4, 1.0, 1.25, 2.0, 26.0])
@pytest.mark.parametrize("sizes", [1, 2, 7])
def test_a_size_is_called_as_expected_inside_its_band_only_in_every_output(times: float, sizes: int) -> None:
    expected = predicted(H100, [case(nbytes=8 * GIB >> place, ranks=8) for place in range(sizes)])
    seconds = [times * expected[0].seconds, *(other.seconds for other in expected[1:])]
    rows = [
        measurement("nccl", (took,), nbytes=at.case.nbytes, ranks=8) for at, took in zip(expected, seconds, strict=True)
    ]
    result = check(run=Run(Path("run"), Header(), tuple(rows), True), on="dgx-h100")
    assert result
    inside = expected[0].low <= seconds[0] <= expected[0].high
    (odd,) = (checked for checked in result.sizes if checked.row.case.nbytes == 8 * GIB)
    assert (odd.judgement.says == "as expected") == inside
    assert (odd.word is Word.SLOW) == (result.word is Word.SLOW) == (times >= 2)
    assert ("correct and as expected" in result.line) == inside
    whole, *tests = ElementTree.fromstring(junit([verdicts.suite(result)])).iter("testcase")
    (case_of_odd,) = (test for test in tests if ", 8 GiB," in test.attrib["name"])
    (record,) = (each for each in verdicts.document(result)["curves"][0]["sizes"] if each["nbytes"] == 8 * GIB)
    assert (record["says"], record["word"]) == (odd.judgement.says, odd.word.value)
    for test in (case_of_odd, whole):
        assert (test.find("failure") is not None) == (times >= 2)


def test_ranks_that_share_a_gpu_are_told_the_bandwidth_of_the_array() -> None:
    alone = size()
    shared = replace(alone, row=replace(alone.row, note=Note(shared=Sharing(8, 1))))
    assert alone.figure.startswith(f"{alone.row.busbw / 1e9:.1f} of ")
    assert shared.figure.startswith(f"{alone.row.algbw / 1e9:.1f} of ")


def verdict(*sizes: CheckedSize, word: Word = Word.OK, where: str = "8 x H100", ops: str = "allreduce") -> CheckResult:
    curves = (CheckedCurve(sizes, word, sight=Sight(1.3, (math.nan, 1.6, 1.4))),) if sizes else ()
    return CheckResult(where, f"the model of {where}", tuple(ops.split(",")), curves, seconds=3.0)


def wrong(where: str = "8 x H100", name: str = "nccl") -> CheckResult:
    """The verdict on a run with a wrong row and a right one, of which nothing is known."""
    rows = (measurement(name), replace(measurement(name, nbytes=8), mismatch=Mismatch(1, 7, 0, "1.0", "2.0", 1)))
    result = check(run=Run(Path("run"), Header.from_json({"topology": {"name": where}}), rows, True))
    assert result
    return result


EVERY = (  # kinds of verdicts
    verdict(size(8, 1e-5), size(GIB), word=Word.OK),
    verdict(size(GIB), size(MIB, 3e-5, 1.4), word=Word.SLOW),
    verdict(size(8, 2e-5, 2.0), size(GIB, 8e-3, 2.0), word=Word.SLOW),
    verdict(size(8, 1e-5, 1.05), size(GIB, 4e-3, 1.05), word=Word.SLOW),  # all sizes together
    verdict(size(GIB, share=0.4), word=Word.FAST),
    verdict(size(GIB), word=Word.UNKNOWN),  # of too little sight
    verdict(size(GIB), size(GIB, dtype="half"), word=Word.OK),
    verdict(size(GIB, share=math.nan), word=Word.UNKNOWN),
    verdict(),
    wrong(),
    wrong(HOSTILE, HOSTILE),
    verdict(size(name=HOSTILE), size(name=HOSTILE + HOSTILE), word=Word.SLOW, where=HOSTILE),
)


def test_every_writer_says_the_same_word(tmp_path: Path) -> None:
    assert {result.word for result in EVERY} == {*Word}
    for result in EVERY:
        word, document = result.word, verdicts.document(result)
        assert document["word"] == word.value
        assert document["line"].startswith(f"collbench: {word.value} ")
        assert verdicts.line(result, "plain") == printable(result.line)
        assert samples(exported(result, tmp_path))["collbench_check_status"].popitem()[1] == EXITS["nagios"][word]
        whole, *tests = ElementTree.fromstring(junit([verdicts.suite(result)])).iter("testcase")
        words = [Word.WRONG] * len(document["wrong_or_failed"])
        for curve in document["curves"]:  # no size of a curve that is not known passes
            assert document.keys() >= curve.keys() - {"implementation", "details", "reasons", "sizes"} > {"limit"}
            unknown = [Word.UNKNOWN] * len(curve["sizes"])
            words += unknown if curve["word"] == "UNKNOWN" else [Word(each["word"]) for each in curve["sizes"]]
        for test, said in zip((whole, *tests), (word, *words), strict=True):
            assert (test.find("failure") is not None) is said.bad
            assert (test.find("skipped") is not None) is (said is Word.UNKNOWN)
            (told,) = test
            assert said is Word.OK or said.value in (told.get("message") or told.text or ""), ElementTree.tostring(test)
        assert all(verdicts.line(result, exits).startswith(line_of(exits, word, "")) for exits in EXITS)
    numbers = {exits: [statuses[word] for word in Word] for exits, statuses in EXITS.items()}
    assert numbers == {"plain": [3, 3, 4, 0, 0], "nagios": [2, 2, 3, 1, 0], "npd": [1, 1, 2, 0, 0]}


def alarms(value: float, limit: str) -> bool:
    """Whether Nagios alarms: outside the range, which begins at 0 and ends at its number, or begins there."""
    start, colon, end = limit.rpartition(":")
    return value < float(start) if colon and not end else not 0 <= value <= float(end)


PERFORMANCE = re.compile(r"[A-Za-z0-9_.-]+=[0-9.]+(us)?(;;[0-9.]+:?)?")  # numbers without an exponent


def test_nagios_reads_one_line_whose_ranges_alarm_where_something_is_slow() -> None:
    for result in EVERY:
        line = verdicts.line(result, "nagios")
        said, _, data = line.partition(" | ")
        assert line.isprintable()
        assert "|" not in said + data
        assert bool(data) == bool(result.sizes)
        labels = [item.partition("=")[0] for item in data.split()]
        assert len(set(labels)) == len(labels)
        assert all(PERFORMANCE.fullmatch(item) for item in data.split()), data
    for seconds in (2e-7, 4e-3, 90.0):
        for nbytes in (8, 8 * GIB):
            for share in (0.5, 1.05, 1.2, 3.0):
                data = verdicts.line(verdict(size(nbytes, seconds, share)), "nagios").partition(" | ")[2]
                assert PERFORMANCE.fullmatch(data), data
                value, _, limit = re.sub("us|.*=", "", data).partition(";;")
                assert alarms(float(value), limit) is (share > 1.1), data
                assert ("_GBps=" in data) is limit.endswith(":") is (nbytes > 8), data


def test_figures_of_a_label_are_those_of_its_slowest_curve() -> None:
    fine, half = size(), size(GIB, 8e-3, 2.0)
    in_place = replace(half.row, case=replace(half.row.case, in_place=True))
    for slow in (replace(half, row=in_place), size(GIB, 8e-3, 2.0, dtype="half"), size(GIB + MIB, 8e-3, 2.0)):
        for pair in ((fine, slow), (slow, fine)):
            curves = tuple(CheckedCurve((one,), one.word) for one in pair)
            result = replace(verdict(fine), curves=curves)
            data = verdicts.line(result, "nagios").partition(" | ")[2].split()
            figures = [item.partition("=")[2].partition(";;") for item in data]
            assert any(alarms(float(value), limit) for value, _, limit in figures)
            lines = verdicts.metrics(result).splitlines()
            (shown,) = (line for line in lines if line.startswith("collbench_bus_"))
            assert float(shown.rpartition(" ")[2]) < fine.row.busbw / 1e9 / 1.5


def test_node_problem_detector_reads_the_verdict_in_80_bytes() -> None:
    for result in EVERY:
        line = verdicts.line(result, "npd")
        assert len(line.encode()) <= 80
        assert line.isprintable()
    for where in ("é" * 200, "", "OK", "SLOW", "collbench"):
        slow = verdict(size(share=2.0), word=Word.SLOW, where=where)
        line = verdicts.line(slow, "npd")
        assert line.startswith("collbench: SLOW allreduce: 469.8 of 939.5 GB/s expected at 1 GiB (50 %)"), line
    many = verdict(size(share=2.0), word=Word.SLOW, ops="allreduce,allgather,reducescatter,broadcast,alltoall")
    assert "469.8 of 939.5 GB/s" in verdicts.line(many, "npd")
    assert "SLOW 5 collectives: " in verdicts.line(many, "npd")
    assert line_of("npd", Word.UNKNOWN, "é" * 80) == "collbench: UNKNOWN " + "é" * 30


def test_junit_counts_its_cases() -> None:
    for result in EVERY:
        suite = ElementTree.fromstring(junit([verdicts.suite(result)]))
        for kind, counted in (("", "tests"), ("/failure", "failures"), ("/skipped", "skipped")):
            assert suite.get(counted) == str(len(suite.findall(f"testcase{kind}")))
        assert all(case.get("name") for case in suite)


def test_json_holds_numbers_that_agree_and_no_nan() -> None:
    for result in EVERY:
        document = json.loads(json.dumps(verdicts.document(result), allow_nan=False))
        for curve in document["curves"]:
            for each in curve["sizes"]:
                if each["ratio"] is not None:
                    assert each["seconds"] == pytest.approx(each["ratio"] * each["expected_seconds"])
                factor = 2 * (each["ranks"] - 1) / each["ranks"]
                assert each["busbw"] == pytest.approx(each["nbytes"] * factor / each["seconds"])


# ------------------------------------------------------------------------------------------------------------- metrics

LABELS = r'\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*",?)+)\}'
SAMPLE = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*){LABELS} (\S+)")  # and no time behind it, which node_exporter refuses


def samples(text: str) -> dict[str, dict[str, float]]:
    """Values by metric and labels of Prometheus' text format, whose rules are looked at."""
    found: dict[str, dict[str, float]] = {}
    assert text.endswith("\n")
    for name, group in groupby(text.splitlines(), lambda line: line.split("{")[0].split()[2 if line[0] == "#" else 0]):
        told, typed, *lines = group
        assert name not in found
        assert told.startswith(f"# HELP {name} ")
        assert typed == f"# TYPE {name} gauge"
        found[name] = {}
        for line in lines:
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match[2] not in found[name], "node_exporter drops one of two"
            found[name][match[2]] = float(match[3])
        assert found[name]
    return found


def exported(result: CheckResult, folder: Path) -> str:
    write_verdict("metrics", folder / "collbench.prom", verdicts.metrics(result))
    return (folder / "collbench.prom").read_text(encoding="utf-8")


def test_metrics_have_the_labels_of_nccls_inspector_and_each_series_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    for result in EVERY:
        found = samples(exported(result, tmp_path))
        assert not [name for name in found if name.startswith("nccl_")], "node_exporter would drop Inspector's"
        assert all(math.isfinite(value) for series in found.values() for value in series.values())
    one_bucket = verdict(size(GIB), size(GIB + GIB // 2), size(8), size(512 * MIB, 4e-3, 2.0))
    found = samples(exported(one_bucket, tmp_path))
    measured, expected = (found[f"collbench_{word}bus_bandwidth_gbs"] for word in ("", "expected_"))
    assert list(measured) == list(expected)
    assert next(iter(measured.values())) == pytest.approx(469.76, rel=1e-4)
    assert list(expected.values())[2] == pytest.approx(2 * list(measured.values())[2])
    for labels, bucket in zip(measured, ("1-2GB", "8-9B", "512-513MB"), strict=True):
        for pair in ('slurm_job_id="42"', 'nranks="8"', 'collective="AllReduce"', f'message_size="{bucket}"'):
            assert pair in labels


def test_promtool_accepts_the_metrics(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if not promtool:
        missing = "promtool is not installed: apt-get install prometheus"
        if "CI" in os.environ:
            pytest.fail(missing)
        pytest.skip(missing)
    for result in EVERY:
        text = exported(result, tmp_path)
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), done.stderr


# --------------------------------------------------------------------------------------------------------------- files


def test_a_file_of_metrics_is_replaced_as_a_whole_and_readable_by_all(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        exported(EVERY[0], tmp_path)
        with (tmp_path / "collbench.prom").open(encoding="utf-8") as reader:
            first = reader.readline()
            exported(EVERY[2], tmp_path)
            assert samples(first + reader.read())["collbench_check_status"].popitem()[1] == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "collbench.prom").stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["collbench.prom"]


def test_half_a_file_of_metrics_is_no_file_of_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    halves = []

    def refused(half: Path, target: Path) -> None:
        halves.append((half.parent, half.suffix, samples(half.read_text(encoding="utf-8")), target.exists()))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", refused)
    with pytest.raises(StorageError, match="No space left"):
        exported(EVERY[0], tmp_path)
    ((folder, suffix, _, there),) = halves
    assert folder == tmp_path
    assert suffix != ".prom"
    assert not there
    assert list(tmp_path.iterdir()) == []
