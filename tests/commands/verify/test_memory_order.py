"""`collbench verify --races`: kernels of users and of the package, with and without mistakes."""

from pathlib import Path

import pytest

from collbench.algorithms import implementations
from collbench.collectives import COLLECTIVES
from collbench.commands.verify import memory_order
from collbench.exits import BAD, REFUSED
from collbench.measure import races
from tests.conftest import ROOT, Command
from tools.kernels.streams import ALLREDUCES, OTHERS

KERNEL = """#include "flags.cuh"

// All ranks have come, or have read all inputs.
__device__ void meet(const World& world, u64 fifo, unsigned rank, unsigned number) {
  __syncthreads();
  for (unsigned to = threadIdx.x; to < world.ranks; to += blockDim.x)
    store_release((Flag*)(world.fifo_of(to) + fifo) + 32 * rank, number);
  for (unsigned from = threadIdx.x; from < world.ranks; from += blockDim.x)
    while (load_acquire((Flag*)(world.fifo_of(rank) + fifo) + 32 * from) - number >= LEAD) {}
  __syncthreads();
}

extern "C" __global__ void NAME(PARAMETER(World) world, PARAMETER(u64) fifo, PARAMETER(u64) count) {
  const unsigned rank = world.rank();
  if (world.block()) return;
  unsigned* const met = (unsigned*)(world.fifo_of(rank) + fifo) + 32 * MAX_RANKS;
  const unsigned number = *met + 1;
  meet(world, fifo, rank, number);
  for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
    T sum = ((const T*)world.send[0])[i];
    for (unsigned from = 1; from < world.ranks; from++) sum = combine(sum, ((const T*)world.send[from])[i]);
    ((T*)world.receive[rank])[i] = sum;
  }
  meet(world, fifo, rank, number + 1);
  if (threadIdx.x == 0) *met = number + 1;
}
"""
RECORD = 'collectives = ["allreduce"]\narguments = ["fifo", "count"]\nfifo = 20000\nin_place = false\n'
RACES = ("verify", "--races")


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A right kernel, the same with relaxed flags, and a text that is none."""
    folder = tmp_path / "own"
    folder.mkdir()
    relaxed = KERNEL.replace("store_release", "store_relaxed").replace("load_acquire", "load_relaxed")
    for name, text in {"right": KERNEL, "relaxed": relaxed, "text": "no kernel"}.items():
        (folder / f"{name}.cu").write_text(text.replace("NAME", name))
        (folder / f"{name}.toml").write_text(RECORD)
    return folder


@pytest.mark.usefixtures("sanitizer")
@pytest.mark.timeout(300)
def test_relaxed_flags_of_a_users_kernel_are_found_and_a_right_kernel_is_clean(
    collbench: Command, kernels: Path
) -> None:
    names = ("right", "relaxed", "text", "mpi", "ring-host")
    done = collbench(*RACES, "--impl", ",".join(names), "-g", "2", COLLBENCH_KERNELS=str(kernels))
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    words = {line.split()[0]: line.split()[2:] for line in lines if line.split()[0] in names}
    assert words == {"right": ["clean"], "relaxed": ["RACE"], "text": ["NOT", "COMPILED"]}
    evidence = "".join(line for line in lines if line.startswith("  "))
    sums = next(number for number, line in enumerate(KERNEL.splitlines(), 1) if "T sum" in line)
    assert f"reads: relaxed.cu:{sums}" in evidence
    assert "caller" in evidence
    assert "text.cu:1" in evidence
    assert all(any(name in line for line in lines if "not tried" in line) for name in ("mpi", "ring-host"))
    assert collbench(*RACES, "--impl", "right", "-g", "2", COLLBENCH_KERNELS=str(kernels)).returncode == 0


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("sanitizer")
def test_the_packages_kernels_are_clean_until_a_header_in_the_folder_is_relaxed(here: Command, tmp_path: Path) -> None:
    done = here(*RACES)
    assert done.returncode == 0, done.stdout
    header = (ROOT / "kernels" / "flags.cuh").read_text()
    (tmp_path / "flags.cuh").write_text(header.replace("__ATOMIC_RELEASE", "__ATOMIC_RELAXED"))
    done = here(*RACES, "--impl", "ring-flags,one-shot", "-q", COLLBENCH_KERNELS=str(tmp_path))
    assert done.returncode == 1, done.stdout
    assert {line.split()[-1] for line in done.stdout.splitlines() if line.startswith(("ring", "one"))} == {"RACE"}


def test_every_kernel_of_the_harness_is_tried_and_every_other_implementation_has_a_reason() -> None:
    subjects, untried = memory_order.subjects(list(implementations()), list(COLLECTIVES))
    tried = {kernel for subject in subjects for kernel in subject.run(2).kernels}
    assert tried == races.kernels() == {*ALLREDUCES, *OTHERS, races.NARROW}
    names = {subject.title.split()[0] for subject in subjects}
    assert names | set().union(*untried.values()) == set(implementations())
    assert not names & set().union(*untried.values())


def test_what_cannot_be_tried_is_refused_in_a_line(here: Command) -> None:
    for words, status, said in (
        ("--impl mpi", BAD, "library"),
        ("--op barrier --impl ring-flags", BAD, "no such collective"),
        ("-g 9", REFUSED, "2 to 8 ranks"),
        ("-d half", REFUSED, "--datatype"),
        ("--bits", REFUSED, "--bits"),
        ("--json -", REFUSED, "--json"),
    ):
        done = here(*RACES, *words.split())
        assert (done.returncode, done.stderr.count("\n")) == (status, 1), words
        assert said in done.stderr, words
    done = here(*RACES, "--impl", "one-shot", CXX="false")
    assert (done.returncode, done.stderr.count("\n")) == (BAD, 1)
    assert "ThreadSanitizer" in done.stderr
