"""What CONTRIBUTING.md promises: one file or one record more in a copy of the package, and it is found and used."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from collbench.algorithms import choose
from collbench.algorithms.records import recorded
from collbench.errors import UsageError
from collbench.platforms import compiler
from tests.conftest import ROOT, carried_out, mpiexec, of_a_user
from tools.kernels import nvrtc

RECORD, COMMAND, FORMAT = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
MEASURING_RECORD = '''"""How long the smallest message takes."""

from collbench.presence import Command

COMMANDS = (Command(__name__, "ping", section="How fast?", summary="Time the smallest message.", together=True),)
'''
MEASURING = '''"""`collbench ping`."""

from typing import Any

import click

from collbench.cli.options import made, options_of
from collbench.cli.progress import LiveTable
from collbench.cli.running import finish, run_session
from collbench.requests.sessions import measuring_session
from collbench.requests.sweeps import SweepRequest


@click.command(params=options_of(SweepRequest, "on ranks"))
def command(**options: Any) -> int:
    """Time the smallest message."""
    session, _ = measuring_session(made(SweepRequest, options, impl="library", minbytes=4, maxbytes=4))
    interrupted = run_session(session, LiveTable(0))
    if session.leader:
        click.echo(f"{session.results[0].times[0] > 0}")
    return interrupted or finish([session])
'''
USE = '''"""Types of the library."""

import collbench

word = collbench.scan(file="x").word.value
rows = collbench.pairs(2).results
'''
COLLECTIVE = """        Collective(
            name="rotate",
            aliases=("shift",),
            sharded=False,
            reduces=False,
            rooted=False,
            bus_factor=lambda ranks: 1.0,
            moves=lambda rank, ranks, root: [(0, (rank + 1) % ranks, 0)],
            in_place=None,
        ),
"""
IMPLEMENTATION = '''"""`copies`: every rank copies what it is to have from where it lies."""

from collbench.algorithms import Implementation
from collbench.platforms.layout import buffers
from collbench.platforms.interface import Prepared


def _prepare(case, platform):
    size = case.block * case.dtype.itemsize

    def launch(launches):
        for _ in range(launches):
            platform.launcher.synchronize()  # nobody's input is older than this call
            for rank in platform.local:
                _, home = buffers(platform.memory, case, rank)
                for target, source, block in case.collective.moves(rank, case.ranks, case.root):
                    start = buffers(platform.memory, case, source)[0] + block * size
                    platform.launcher.copy(rank, home + target * size, start, size)
            platform.launcher.synchronize()

    return Prepared(launch, host_driven=True)


IMPLEMENTATION = Implementation(
    name="copies",
    summary="copies by the host, for what nobody else knows",
    platforms=("cpu", "spare"),
    collectives=("rotate", "alltoall"),
    prepare=_prepare,
    order=50,
)
'''
PRESET = """name = "Tomorrow's box"

[gpu]
arch = "sm130"

[node]
gpus = 4
fabric = "mesh"
"""
PLATFORM = '''"""The CPUs under another name."""

from dataclasses import replace

from collbench.platforms import cpu

PLATFORM = replace(cpu.PLATFORM, name="spare", preference=99)
'''
TWO_WAY = """collectives = ["allreduce", "broadcast"]
arguments = ["fifo", "root", "count"]
fifo = 524_288
"""
TWO_WAY_KERNELS = """#include "flags.cuh"

// By way of FIFOs, so that it works in place.
template <bool ADDS>
__device__ void pass(const World& world, u64 fifo, unsigned root, u64 count) {
  const Call call(world);
  auto inbox = [&](unsigned rank) { return (T*)(world.fifo_of(rank) + fifo); };
  const u64 first = call.block * blockDim.x + threadIdx.x, stride = world.blocks * blockDim.x;
  for (u64 i = first; i < count; i += stride) inbox(call.rank)[i] = ((const T*)world.send[call.rank])[i];
  call.meet(0);
  for (u64 i = first; i < count; i += stride) {
    T x = inbox(root)[i];
    for (unsigned rank = 0; ADDS && rank < world.ranks; rank++)
      if (rank != root) x = combine(x, inbox(rank)[i]);
    ((T*)world.receive[call.rank])[i] = ADDS ? finish(x, world.ranks) : x;
  }
  call.meet(1);
  call.leave();
}

extern "C" __global__ void __launch_bounds__(512, 1)
    two_way_allreduce(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(unsigned) root, PARAMETER(u64) count) {
  pass<true>(world, fifo, root, count);
}

extern "C" __global__ void __launch_bounds__(512, 1)
    two_way_broadcast(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(unsigned) root, PARAMETER(u64) count) {
  pass<false>(world, fifo, root, count);
}
"""


def put(path: Path, text: str) -> None:
    assert not path.exists()
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def add(path: Path, opening: str, text: str) -> None:
    before = path.read_text()
    assert before.count(opening) == 1
    path.write_text(before.replace(opening, opening + text))


def test_a_kernel_with_a_record_stands_beside_the_others_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "kernels.md").read_text().partition("## Kernels of your own\n")[2]
    (source,), (record,), (commands,) = (
        re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)[:1] for kind in (r"c\+\+", "toml", "sh")
    )
    put(tmp_path / "my-kernels" / "mine.cu", source)
    put(tmp_path / "my-kernels" / "mine.toml", record)
    shutil.copy(tmp_path / "my-kernels" / "mine.cu", tmp_path / "my-kernels" / "other.cu")
    for command in commands.splitlines():
        setting, program, *words = command.split()
        assert program == "collbench"
        done = carried_out(tmp_path, of_a_user() | dict([setting.split("=")]), *words)
        assert done.returncode == 0, f"{command}: {done.stdout + done.stderr}"
        assert "mine" in done.stdout, command
        assert "other" not in done.stdout.split(), "a kernel without a record is none of its own"
    monkeypatch.setenv("COLLBENCH_KERNELS", str(tmp_path / "my-kernels"))
    assert nvrtc.compile_source(compiler.source("mine.cu"), 90, ("-std=c++17",)).resources["mine"].spill_stores == 0


def test_a_record_that_is_wrong_is_refused_with_the_choices(tmp_path: Path) -> None:
    wrong = {
        "mine": {
            "": "collectives",
            "collectives = []": "collectives",
            'collectives = ["allreduse"]': "allreduce, ",
            'collectives = ["allreduce"]\nargument = ["count"]': "arguments, ",
            'collectives = ["allreduce"]\narguments = ["length"]': "length",
            'collectives = ["allreduce"]\nfifo = "1M"': "fifo",
        },
        "ring-flags": {'collectives = ["allreduce"]': "there is an implementation of that name"},
        "ladder": {'collectives = ["allreduce"]': "there is an implementation of that name"},
        "a,b": {'collectives = ["allreduce"]': "letters"},
    }
    for name, records in wrong.items():
        path = tmp_path / name / f"{name}.toml"
        path.parent.mkdir()
        for text, words in records.items():
            path.write_text(text)
            with mock.patch.dict(os.environ, COLLBENCH_KERNELS=str(path.parent)), pytest.raises(UsageError) as refusal:
                list(recorded({"ring-flags", "ladder"}))
            assert str(refusal.value).startswith(str(path)), text
            assert words in str(refusal.value), text


def test_a_kernel_without_its_record_is_named_with_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "k" / "my.cu", "")
    put(tmp_path / "k" / "one_shot.cu", "")
    put(tmp_path / "recorded" / "whole.cu", "")
    put(tmp_path / "recorded" / "whole.toml", 'collectives = ["allreduce"]')
    record, variable = 'write k/my.toml with the line collectives = ["allreduce"]', "set COLLBENCH_KERNELS"
    for kernels, name, said, unsaid in (
        ("k", "my", (record,), (variable,)),
        ("k", "my.cu", (record,), (variable,)),
        ("", "k/my.cu", (record, f"{variable}=k"), ()),
        ("", "recorded/whole.cu", (f"{variable}=recorded",), ("write",)),
        ("", "my", ("unknown implementation 'my'; choose from",), ()),
        ("k", "direct", ("unknown implementation 'direct'; choose from",), ()),  # one of the package's
    ):
        monkeypatch.setenv("COLLBENCH_KERNELS", kernels)
        with pytest.raises(UsageError) as refusal:
            choose(name, "cpu")
        for words in said:
            assert words in str(refusal.value), name
        for words in unsaid:
            assert words not in str(refusal.value), name


def test_records_of_several_collectives_have_kernels_and_arguments_of_their_own(tmp_path: Path) -> None:
    put(tmp_path / "k" / "two-way.toml", TWO_WAY)
    put(tmp_path / "k" / "two-way.cu", TWO_WAY_KERNELS)
    words = ("verify", "--on", "cpu", "--ranks", "2", "--impl", "two-way", "--op", "broadcast,allreduce")
    done = carried_out(tmp_path, of_a_user() | {"COLLBENCH_KERNELS": "k"}, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "16 right, 0 wrong, 0 failed" in done.stdout


Collbench = Callable[..., str]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("copy")
    shutil.copy(ROOT / "pyproject.toml", home)
    put(home / "use.py", USE)
    for folder in ("collbench", "kernels"):
        shutil.copytree(ROOT / folder, home / folder)
    package = home / "collbench"
    for name, record, command in (("fastest", RECORD, COMMAND), ("ping", MEASURING_RECORD, MEASURING)):
        put(package / "commands" / name / "__init__.py", record)
        put(package / "commands" / name / "command.py", command)
    put(package / "algorithms" / "copies.py", IMPLEMENTATION)
    put(package / "platforms" / "spare" / "__init__.py", PLATFORM)
    put(package / "commands" / "formats" / "stopwatch.py", FORMAT)
    put(package / "topology" / "presets" / "tomorrow.toml", PRESET)
    add(package / "collectives.py", "    for collective in (\n", COLLECTIVE)
    architectures = package / "topology" / "products.toml"
    (known,) = re.findall(r"^\[architectures\.sm100\]\n(?:.+\n)+", architectures.read_text(), re.MULTILINE)
    add(architectures, known, "\n" + known.replace("sm100", "sm130").replace("Blackwell", "Rubin"))
    return home


@pytest.fixture
def variables(home: Path) -> dict[str, str]:
    return of_a_user() | {"PYTHONPATH": str(home), "PYTHONSAFEPATH": "1"}


@pytest.fixture
def collbench(variables: dict[str, str], tmp_path: Path) -> Collbench:
    def run(*arguments: str, status: int = 0) -> str:
        done = carried_out(tmp_path, variables, *arguments)
        assert done.returncode == status, done.stderr
        return done.stdout or done.stderr

    return run


def row(text: str, name: str) -> str:
    """The line of the first table that has one beginning with a name."""
    return next(line for line in text.splitlines() if line.split()[:1] == [name])


def test_all_are_listed_and_offered_by_their_names(collbench: Collbench) -> None:
    sections = collbench("--help").split("\n\n")
    for name, section in (("fastest", "Is it right?"), ("ping", "How fast?")):
        (listed,) = (text for text in sections if text.startswith(f"{section}\n"))
        assert row(listed, name), name
    listed = collbench("list")
    (line,) = (line for line in listed.splitlines() if line.startswith("rotate") and "shift_perf" in line)
    assert line.split()[-1] == "1"
    assert "copies by the host" in row(listed, "copies")
    assert "cpu, spare" in row(listed, "copies")
    assert "4 x Rubin" in row(listed, "tomorrow")
    assert "spare" in collbench("sweep", "--on", "nowhere", status=2)


def test_the_command_of_contributing_answers_refuses_and_is_short(collbench: Collbench) -> None:
    run = str(ROOT / "results" / "cpu-2-ranks")
    assert len(COMMAND.splitlines()) < 60
    assert collbench("fastest", run, "--least", "1M").count("MiB") < collbench("fastest", run).count("iB")
    rows = json.loads(collbench("fastest", run, "--json"))
    assert [each["nbytes"] for each in rows] == sorted({each["nbytes"] for each in rows})
    assert "give a smaller --least" in collbench("fastest", run, "--least", "1T", status=2)


def test_a_command_that_measures_is_carried_out_by_all_ranks_of_a_launcher(
    variables: dict[str, str], tmp_path: Path
) -> None:
    for word, status, printed in (("--on=cpu", 0, "True\n"), ("--nothing", 2, "")):
        ranks = [mpiexec(), "-n", "3", sys.executable, "-m", "collbench", "ping", word]
        done = subprocess.run(ranks, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (status, printed), done.stderr
        assert len([line for line in done.stderr.splitlines() if "error" in line]) == bool(status)


def test_a_format_is_told_by_its_content_and_offered_for_export(collbench: Collbench, tmp_path: Path) -> None:
    log, file = "stopwatch 4\n1024 10.5\n2048 11.5\n", tmp_path / "log.txt"
    file.write_text(f"{log}4096\n")
    printed = collbench("import", str(file), "--out", "stopwatch")
    assert "allreduce, float, sum, 4 ranks" in printed
    assert "10.5 us" in printed
    assert collbench("export", "stopwatch", "--to", "stopwatch") == log


@pytest.mark.parametrize("words", ["ruff check", "ruff format --check", pytest.param("mypy", marks=pytest.mark.full)])
def test_commands_a_format_and_their_user_are_clean_as_printed(words: str, home: Path) -> None:
    added = [f"collbench/commands/{name}" for name in ("fastest", "ping", "formats/stopwatch.py")]
    asked = [sys.executable, "-P", "-m", *words.split(), "--cache-dir=.cache", *added, "use.py"]
    done = subprocess.run(asked, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_preset_is_drawn_and_predicted_by_what_its_architecture_says(collbench: Collbench) -> None:
    assert "Tomorrow's box" in collbench("topo", "tomorrow")
    assert "predicted" in collbench("predict", "tomorrow", "-b", "1M", "-e", "1M", "--no-plot")


def test_a_collective_is_checked_on_real_ranks_of_a_platform(collbench: Collbench) -> None:
    printed = collbench(
        *("sweep", "--on", "spare", "--op", "shift", "--impl", "copies", "-b", "64K", "-e", "64K"),
        *("--ranks", "2", "-n", "7", "--no-plot"),
    )
    assert "rotate, float, 2 ranks" in printed
    assert " 64 KiB  copies " in printed
    assert len(re.findall("  (ok|disturbed)", printed)) == 1
