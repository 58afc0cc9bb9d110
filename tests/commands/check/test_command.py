"""`collbench check`: exit statuses, files and words of runs that were measured before, and how it says no."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.analysis.judgement import EXITS, Word
from collbench.cli.verdicts import line_of
from collbench.commands.check import library as checking
from collbench.errors import UsageError
from collbench.results.disturbed import Scheduling
from collbench.runfile.store import Writer, read
from collbench.units import format_rate, format_seconds
from tests.conftest import ROOT, Command, of_a_user

AB = ROOT / "results" / "cpu-ab-slowed-ring"
RUNS = ("as-is", "COLLBENCH_KERNELS=my-kernels")
GOOD, SLOW = (f"{AB}/{name} --reference {AB}/as-is --slower 10%" for name in RUNS)
ALONE = f"{AB}/as-is"
FILES = ("json", "junit", "metrics")


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*arguments: object) -> None:
        pytest.fail("something is measured")

    monkeypatch.setattr(checking, "measuring_session", measured)


def test_the_exit_status_is_for_the_program_that_reads_it(here: Command) -> None:
    for exits, statuses in EXITS.items():
        for words, word in ((GOOD, Word.OK), (SLOW, Word.SLOW), (ALONE, Word.UNKNOWN)):
            done = here("check", *words.split(), "--exit", exits)
            assert (done.returncode, done.stderr) == (statuses[word], "")
            last = done.stdout.splitlines()[-1]
            assert last.startswith(line_of(exits, word, "allreduce")[:30]), last
            assert (done.stdout.count("\n") == 1) is (exits != "plain")


def test_every_file_is_written_beside_the_verdict(here: Command, tmp_path: Path) -> None:
    asked = [f"--{name}={tmp_path / name}" for name in FILES]
    done = here("check", "--run", *SLOW.split(), "-q", *asked)  # the earlier form, of which alone metrics are written
    assert (done.returncode, done.stdout.count("\n"), done.stderr.count("\n")) == (3, 1, 1)
    assert json.loads((tmp_path / "json").read_text(encoding="utf-8"))["word"] == "SLOW"
    for name in FILES:
        assert (" 2\n" if name == "metrics" else "SLOW") in (tmp_path / name).read_text(encoding="utf-8")


def test_json_on_standard_output_stands_alone(here: Command) -> None:
    for words in ("--json -", "--json - --exit nagios", "--json - -q"):
        done = here("check", *SLOW.split(), *words.split())
        assert json.loads(done.stdout)["word"] == "SLOW"


def test_wrong_words_are_one_line_before_anything_is_measured(here: Command, tmp_path: Path) -> None:
    floors = tmp_path / "floors.toml"
    floors.write_text('[[floor]]\ncollective="allreduce"\nsize="1M"\nvalue=1\nunit="GB/s"\nlowest=2\n')
    for words, told in (
        ("--slower 0", "'0' is no share"),
        ("--slower nan", "'nan' is no share"),
        ("--budget x", "'x' is no duration; write one such as 500ms, 5s"),
        ("--budget 0s", "'0s' is no duration"),
        ("--out a/c.jsonl", "--out a/c.jsonl names a file, but is a folder for run.jsonl; give --out a/c"),
        ("--exit foo", "'foo' is not one of 'plain', 'nagios', 'npd'"),
        (f"{ALONE} --reference missing", "cannot read missing: No such file"),
        (f"{ALONE} --reference {floors}", "floors.toml: Object contains unknown field `lowest`"),
        (f"{ALONE} --on moon", "unknown system 'moon'"),
        (f"{ALONE} --ranks 2 --impl mpi -b 8K", "a run is judged as it was measured; leave out --impl and --minbytes"),
        ("missing", "there is no file or folder missing; give a run, a log or a folder of them, or nothing"),
        (f"{AB}/as-is missing", "there is no file or folder missing"),
        ("dgx-h100", "dgx-h100 is a system, not a file; give --on dgx-h100"),
        (".", "in this folder; name the files"),
        (f"{AB}/as-is --metrics x.prom", "--metrics is for a measurement of this machine"),
        (f"{AB}/as-is --budget 5s", "a run is judged as it was measured; leave out --budget"),
        ("--op alreduce", "unknown collective 'alreduce'"),
    ):
        done = here("check", *words.split())
        measuring = "measuring this machine\n" * (words.startswith("--op"))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, measuring, 1), (words, done.stderr)
        assert told in done.stderr, words
    assert list(tmp_path.iterdir()) == [floors]


def test_a_place_that_cannot_be_written_to_is_found_before_anything_is_measured(here: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    for name in (*FILES, "out"):
        for place in ("/proc/nothing/x", f"{tmp_path}/file/x", *([tmp_path] if name != "out" else [])):
            other = f"--junit={tmp_path}/new" if name == "json" else f"--json={tmp_path}/file"
            done = here("check", f"--{name}={place}", other)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), (name, place, done.stderr)
            assert "cannot write" in done.stderr
            assert f"choose another --{name}" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "before"


def test_no_file_of_a_check_that_dies_keeps_an_earlier_verdict(
    here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    during, places = {}, {name: tmp_path / name for name in FILES}
    asked = [f"--{name}={place}" for name, place in places.items()]

    def read_all() -> dict[str, str]:
        return {name: place.read_text(encoding="utf-8") for name, place in places.items()}

    def measured(*arguments: object) -> None:
        during.update(read_all())
        raise UsageError("a card is gone")

    assert here("check", "--run", *GOOD.split(), *asked).returncode == 0
    monkeypatch.setattr(checking, "measuring_session", measured)
    done = here("check", *asked)
    after = read_all()
    assert (done.returncode, done.stderr) == (2, "collbench: error: a card is gone\n")
    assert json.loads(during["json"])["word"] == json.loads(after["json"])["word"] == "UNKNOWN"
    for name in ("json", "junit"):
        assert "started at" in during[name]
        assert "no verdict: a card is gone" in after[name]
    for metrics in (during["metrics"], after["metrics"]):
        assert re.search(r"^collbench_check_status\{.*\} 3$", metrics, re.MULTILINE)
        assert "wrong_sizes" not in metrics
        assert "bus_bandwidth" not in metrics


def test_a_file_in_the_folder_of_the_run_says_that_the_check_has_started_too(
    here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*arguments: object) -> None:
        assert [path.name for path in (tmp_path / "node").iterdir()] == ["check.json"]
        raise UsageError("a card is gone")

    monkeypatch.setattr(checking, "measuring_session", measured)
    for _ in range(2):
        done = here("check", "--out", "node", "--json", "node/check.json")
        assert (done.returncode, done.stderr) == (2, "collbench: error: a card is gone\n")
        assert json.loads((tmp_path / "node" / "check.json").read_text())["no_verdict"] == "no verdict: a card is gone"


def test_a_full_disk_costs_a_file_and_not_the_verdict(here: Command) -> None:
    for name in FILES:
        for words, exits, status, verdict in (
            (SLOW, "plain", 3, "collbench: SLOW"),
            (GOOD, "plain", 1, "collbench: OK"),
            (GOOD, "nagios", 0, "COLLBENCH OK"),
            (GOOD, "npd", 0, "collbench: OK"),
        ):
            earlier = ["--run"] * (name == "metrics")
            done = here("check", *earlier, *words.split(), "-q", "--exit", exits, f"--{name}=/dev/full")
            assert (done.returncode, done.stderr.count("\n")) == (status, 1 + len(earlier)), (name, words, done.stderr)
            assert "cannot write /dev/full: No space left on device" in done.stderr
            assert done.stdout.startswith(verdict)


def test_without_a_verdict_monitoring_hears_that_nothing_is_known(here: Command) -> None:
    for exits, status, begin in (("nagios", 3, "COLLBENCH UNKNOWN: "), ("npd", 2, "collbench: UNKNOWN ")):
        for words in ("missing", "--junit /proc/nothing/x"):
            done = here("check", *words.split(), "--exit", exits)
            assert done.returncode == status
            assert done.stdout.startswith((f"{begin}cannot ", f"{begin}there is no file"))
            assert (done.stdout.count("\n"), done.stderr.count("\n")) == (1, 1)


def test_what_a_check_cannot_tell_is_said_in_a_sentence(here: Command, tmp_path: Path) -> None:
    whole = read(AB / "as-is")
    for count, words in ((1, "1 of 6 measurements was disturbed"), (2, "2 of 6 measurements were disturbed")):
        with Writer(tmp_path / str(count)) as writer:
            writer.header(whole.header)
            for number, row in enumerate(whole.results):
                writer.append(replace(row, scheduling=Scheduling(off_core=0.9 if number < count else 0.0)))
            writer.end("", 0)
        done = here("check", str(count), "--reference", f"{AB}/as-is", "--slower", "10%")
        assert re.search(r"undecided: they may be 1\.\d\dx slower than expected", done.stdout), done.stdout
        assert words in done.stdout


def test_a_run_without_times_by_size_is_said_to_have_none(here: Command) -> None:
    for run, why in (("cpu-2-ranks-explained", "no times of a collective"), ("dgx-h100-narrow", "predictions only")):
        done = here("check", str(ROOT / "results" / run))
        assert done.returncode == 4
        *_, compared, _, verdict = done.stdout.splitlines()
        assert why in compared
        assert why in verdict


def test_the_table_says_of_a_row_what_the_files_say(here: Command) -> None:
    done, files = here("check", *SLOW.split()), here("check", *SLOW.split(), "--json")
    shown = [
        line.split() for line in done.stdout.splitlines() if line.endswith(("SLOW", "as expected")) and line[0] == " "
    ]
    sizes = [size for curve in json.loads(files.stdout)["curves"] for size in curve["sizes"]]
    assert [line[2:4] for line in shown] == [format_seconds(size["seconds"]).split() for size in sizes]
    assert [line[12] for line in shown] == [format_rate(size["busbw"]) for size in sizes]


def test_a_program_reads_a_file_from_a_pipe_to_its_end(here: Command, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # so that nobody waits for a reader that is gone
    for name in FILES:
        writer = os.open(pipe, os.O_WRONLY)  # until the reader, which may start late, has opened it
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
            done = here("check", "--run", *SLOW.split(), f"--{name}={pipe}")
            while not any(os.path.realpath(opened) == str(pipe) for opened in Path(f"/proc/{reader.pid}/fd").iterdir()):
                time.sleep(0.01)
            os.close(writer)
            assert reader.stdout
            assert b"SLOW" in reader.stdout.read(), name
        assert done.returncode == 3
    os.close(held)


def test_a_reader_that_has_left_ends_it_without_a_word(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "collbench", "check", *SLOW.split()]
    done = subprocess.run(command, cwd=tmp_path, env=of_a_user(), stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
