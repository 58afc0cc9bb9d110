"""`collbench check`: exit statuses, files and words of runs that were measured before, and how it says no."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collbench.api import checking
from collbench.errors import UsageError
from tests.conftest import ROOT, Command, of_a_user

AB = ROOT / "results" / "cpu-ab-slowed-ring"
RUNS = ("as-is", "COLLBENCH_KERNELS=my-kernels")
GOOD, SLOW = (f"--run {AB}/{name} --reference {AB}/as-is --slower 10%" for name in RUNS)
ALONE = f"--run {AB}/as-is"
FILES = ("json", "junit", "ctrf", "summary", "metrics")


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*arguments: object) -> None:
        pytest.fail("something is measured")

    monkeypatch.setattr(checking, "measuring_session", measured)


def test_the_exit_status_is_for_the_program_that_reads_it(here: Command) -> None:
    for exits, statuses in (("plain", (0, 3, 4)), ("nagios", (0, 2, 3)), ("npd", (0, 1, 2))):
        for words, status, verdict in zip((GOOD, SLOW, ALONE), statuses, ("OK", "FAIL", "UNKNOWN"), strict=True):
            done = here("check", *words.split(), "--exit", exits)
            assert (done.returncode, done.stderr) == (status, "")
            last = done.stdout.splitlines()[-1]
            shown = {"FAIL": "CRITICAL"}.get(verdict, verdict) if exits == "nagios" else verdict
            assert last.startswith(f"COLLBENCH {shown}: " if exits == "nagios" else f"collbench: {verdict} "), last
            assert (done.stdout.count("\n") == 1) is (exits != "plain")


def test_every_file_is_written_beside_the_verdict(here: Command, tmp_path: Path) -> None:
    asked = [f"--{name}={tmp_path / name}" for name in FILES]
    done = here("check", *SLOW.split(), "-q", *asked)
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (3, 1, "")
    assert json.loads((tmp_path / "json").read_text(encoding="utf-8"))["status"] == "FAIL"
    for name in FILES:
        assert "FAIL" in (tmp_path / name).read_text(encoding="utf-8")


def test_json_on_standard_output_stands_alone(here: Command) -> None:
    for words in ("--json -", "--json - --exit nagios", "--json - --drain-reason", "--json - -q"):
        done = here("check", *SLOW.split(), *words.split())
        assert json.loads(done.stdout)["status"] == "FAIL"
    assert here("check", *GOOD.split(), "--drain-reason").stdout == ""
    assert here("check", *SLOW.split(), "--drain-reason").stdout.startswith("collbench: allreduce: ")


def test_wrong_words_are_one_line_before_anything_is_measured(here: Command, tmp_path: Path) -> None:
    floors = tmp_path / "floors.toml"
    floors.write_text('[[floor]]\ncollective="allreduce"\nsize="1M"\nvalue=1\nunit="GB/s"\nlowest=2\n')
    for words, told in (
        ("--slower 0", "'0' is no share"),
        ("--slower nan", "'nan' is no share"),
        ("--budget x", "'x' is no duration; write one such as 500ms, 5s"),
        ("--budget 0s", "'0s' is no duration"),
        ("--exit foo", "'foo' is not one of 'plain', 'nagios', 'npd'"),
        (f"{ALONE} --reference missing", "cannot read missing: No such file"),
        (f"{ALONE} --reference {floors}", "floors.toml: Object contains unknown field `lowest`"),
        (f"{ALONE} --on moon", "unknown system 'moon'"),
        (f"{ALONE} --out new", "leave --out and --renew out"),
        (f"{ALONE} --renew", "leave --out and --renew out"),
        ("--run missing", "cannot read missing"),
        ("--op alreduce", "unknown collective 'alreduce'"),
    ):
        done = here("check", *words.split())
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), (words, done.stderr)
        assert told in done.stderr, words
    assert list(tmp_path.iterdir()) == [floors]


def test_a_place_that_cannot_be_written_to_is_found_before_anything_is_measured(here: Command, tmp_path: Path) -> None:
    """And nothing is left in a place that can; a file that is there stays as it is until the end."""
    (tmp_path / "file").write_text("before")
    for name in (*FILES, "out"):
        for place in ("/proc/nothing/x", f"{tmp_path}/file/x", *([tmp_path] if name != "out" else [])):
            done = here("check", f"--{name}={place}", f"--json={tmp_path}/file")
            if name == "json":
                done = here("check", f"--{name}={place}", f"--junit={tmp_path}/new")
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), (name, place, done.stderr)
            assert "cannot write" in done.stderr
            assert f"choose another --{name}" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "before"


def test_nothing_is_there_before_the_verdict_is(here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def measured(*arguments: object) -> None:
        found.extend(tmp_path.iterdir())
        raise UsageError("measured")

    monkeypatch.setattr(checking, "measuring_session", measured)
    done = here("check", *(f"--{name}={tmp_path / name}" for name in (*FILES, "out")))
    assert (done.returncode, done.stderr, found) == (2, "collbench: error: measured\n", [])


def test_a_full_disk_costs_a_file_and_not_the_verdict(here: Command) -> None:
    """Whose status stays, but that OK with a lost file is an error, except for who watches the machine alone."""
    for name in FILES:
        for words, exits, status, verdict in (
            (SLOW, "plain", 3, "collbench: FAIL"),
            (GOOD, "plain", 1, "collbench: OK"),
            (GOOD, "nagios", 0, "COLLBENCH OK"),
            (GOOD, "npd", 0, "collbench: OK"),
        ):
            done = here("check", *words.split(), "-q", "--exit", exits, f"--{name}=/dev/full")
            assert (done.returncode, done.stderr.count("\n")) == (status, 1), (name, words, done.stderr)
            assert "cannot write /dev/full: No space left on device" in done.stderr
            assert done.stdout.startswith(verdict)


def test_without_a_verdict_monitoring_hears_that_nothing_is_known(here: Command) -> None:
    """On standard output, where it reads, and not as the status that means a problem."""
    for exits, status, begin in (("nagios", 3, "COLLBENCH UNKNOWN: "), ("npd", 2, "collbench: UNKNOWN ")):
        for words in ("--run missing", "--junit /proc/nothing/x"):
            done = here("check", *words.split(), "--exit", exits)
            assert done.returncode == status
            assert done.stdout.startswith(f"{begin}cannot ")
            assert (done.stdout.count("\n"), done.stderr.count("\n")) == (1, 1)


def test_a_narrow_terminal_keeps_size_time_and_verdict(here: Command) -> None:
    wide, narrow = here("check", *SLOW.split()), here("check", *SLOW.split(), COLUMNS="40")
    for done, columns in ((wide, "size time expected ratio busbw"), (narrow, "size time ratio")):
        lines = [line.split() for line in done.stdout.splitlines()]
        assert lines.count(columns.split()) == 2
        assert ["8", "MiB", "1.22", "ms"] in [line[:4] for line in lines if line[-1:] == ["slow"]]
    rows = [line for line in narrow.stdout.splitlines() if "iB  " in line]
    assert len(rows) == 6
    assert max(map(len, rows)) <= 40


def test_a_program_reads_a_file_from_a_pipe_to_its_end(here: Command, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # so that nobody waits for a reader that is gone
    for name in FILES:
        writer = os.open(pipe, os.O_WRONLY)  # until the reader, which may start late, has opened it
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
            done = here("check", *SLOW.split(), f"--{name}={pipe}")
            while not any(os.path.realpath(opened) == str(pipe) for opened in Path(f"/proc/{reader.pid}/fd").iterdir()):
                time.sleep(0.01)
            os.close(writer)
            assert reader.stdout
            assert b"FAIL" in reader.stdout.read(), name
        assert done.returncode == 3
    os.close(held)


def test_a_reader_that_has_left_ends_it_without_a_word(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "collbench", "check", *SLOW.split()]
    done = subprocess.run(command, cwd=tmp_path, env=of_a_user(), stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
