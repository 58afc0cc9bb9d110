"""Kernels that somebody wrote: a fault is told with its file and line, and a wait with who is waited for."""

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from collbench.errors import PlatformError, SourceError
from collbench.platforms import compiler
from collbench.platforms.layout import WINDOW_HEAD, WORLD, awaited
from tests.conftest import ROOT

KERNEL = 'extern "C" __global__ void mine(PARAMETER(u64) x) {}\n'
FAULTS: dict[str, tuple[dict[str, str], str, str]] = {  # files, the place that is named, and what of its words
    "a kernel behind a header": ({"mine.cu": f'#include "flags.cuh"\n\noops;\n{KERNEL}'}, "mine.cu:3", "oops"),
    "two headers": (
        {
            "mine.cu": f'#include "a.cuh"\n#include "a.cuh"\noops;\n{KERNEL}',
            "a.cuh": '#pragma once\n#include "flags.cuh"\n',
        },
        "mine.cu:3",
        "oops",
    ),
    "a header": (
        {"mine.cu": f'#include "in/a.cuh"\n{KERNEL}', "in/a.cuh": '\n#include "../flags.cuh"\noops;'},
        "in/a.cuh:3",
        "oops",
    ),
    "the package's header in its place": (
        {"world.cuh": "oops;\n", "mine.cu": f'#include "flags.cuh"\n{KERNEL}'},
        "world.cuh:1",
        "oops",
    ),
    "no header": (
        {"mine.cu": f'\n#include "gone.cuh"\n{KERNEL}'},
        "mine.cu:2",
        "gone.cuh cannot be read: No such file",
    ),
    "no kernel": ({"mine.cu": '#include "flags.cuh"\n'}, "mine.cu", "has no kernel mine"),
    "no file": ({"other.cu": ""}, "mine.cu", "cannot be read: No such file"),
}


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    """No source or library is known from before, or afterwards: names are those of files in whichever folder."""
    yield
    compiler.source.cache_clear()
    compiler.host_library.cache_clear()


Kernels = Callable[[dict[str, str]], Path]


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    def write(files: dict[str, str]) -> Path:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        monkeypatch.setenv("COLLBENCH_KERNELS", str(folder))
        compiler.source.cache_clear()
        compiler.host_library.cache_clear()
        return folder

    return write


def test_a_fault_of_a_source_names_its_file_and_line_and_blames_no_compiler(kernels: Kernels) -> None:
    for what, (files, place, words) in FAULTS.items():
        folder = kernels(files)
        with pytest.raises(SourceError) as fault:
            compiler.host_kernel("mine.cu", "mine")
        line = str(fault.value)
        assert f"{folder / place}" in line, what
        assert words in line, what
        assert "CXX" not in line, what


def test_a_compiler_that_compiles_nothing_is_to_blame(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels({"mine.cu": KERNEL.replace("PARAMETER(u64) x", "")})
    script = tmp_path / "old"
    script.write_text("#!/bin/sh\necho old: error: unrecognised option -std=c++20 >&2\nexit 1\n")
    script.chmod(0o700)
    monkeypatch.setenv("CXX", str(script))
    compiler.compiler.cache_clear()
    try:
        with pytest.raises(PlatformError, match=r"unrecognised option .*CXX") as fault:
            compiler.host_kernel("mine.cu", "mine")
    finally:
        compiler.compiler.cache_clear()
        compiler.compiler_version.cache_clear()
    assert not isinstance(fault.value, SourceError)


def test_the_text_of_a_source_is_the_same_wherever_it_lies_and_the_judge_is_never_on_trial(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {file: compiler.source(file) for file in ("ring.cu", compiler.JUDGE)}
    kernels(
        {path.relative_to(ROOT / "kernels").as_posix(): path.read_text() for path in (ROOT / "kernels").rglob("*.*")}
    )
    assert own == {file: compiler.source(file) for file in own}
    kernels({compiler.JUDGE: "oops", "recipe.cuh": "oops", "ring.cu": "oops"})
    assert compiler.source(compiler.JUDGE) == own[compiler.JUDGE]
    assert compiler.source("ring.cu") != own["ring.cu"]
    monkeypatch.setenv("COLLBENCH_KERNELS", "/no/such/folder")
    with pytest.raises(PlatformError, match="COLLBENCH_KERNELS names /no/such/folder, which is no folder"):
        compiler.folder()


STUCK = """#include "packets.cuh"

extern "C" __global__ void stuck(PARAMETER(World) world, PARAMETER(u64) way) {
  Window* const mine = world.window_of(world.rank());
  const Call call(world);
  const Channel& channel = mine->channel[3];
  const Flag* const flags[] = {call.met(world.rank(), 2), &channel.arrived.word[0], &channel.room.word[0]};
  if (way < 3) await(flags[way], 1, world, &mine->error.word[0]);
  else receive_packets((const Packets*)world.fifo_of(world.rank()) + 5, 1, world, &mine->error.word[0]);
}
"""


def test_a_kernel_that_waits_for_long_notes_for_whom_until_it_waits_no_more(kernels: Kernels) -> None:
    kernels({"stuck.cu": STUCK})
    kernel = compiler.host_kernel("stuck.cu", "stuck")
    for way, expected in enumerate(("rank 2", "rank 0", "rank 2", "a packet")):
        words = np.zeros(WINDOW_HEAD // 4 + 1024, np.uint32)
        world = np.zeros((), WORLD)
        world["window"][:3] = words.ctypes.data
        world["ranks"], world["first"], world["stride"], world["blocks"] = 3, 1, 1, 1
        world["spins"] = 2**50
        thread = threading.Thread(target=kernel, args=(world, np.uint64(way)))
        thread.start()
        note = ctypes.c_uint32.from_address(words.ctypes.data + 4)
        deadline = time.monotonic() + 60
        while not note.value and time.monotonic() < deadline:
            time.sleep(0.001)
        assert awaited(note.value, 1, 3) == expected
        words[0] = 1  # gives up
        thread.join(60)
        assert not thread.is_alive()
        assert note.value == 0
