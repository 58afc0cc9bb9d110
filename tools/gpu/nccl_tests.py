"""`python -m tools.gpu.nccl_tests --out FOLDER`: nccl-tests and `nccl` of collbench must time the same alike.

NCCL_TESTS=FOLDER names the source of nccl-tests, which is copied and built here with nvcc against the NCCL that CuPy
uses; nothing is downloaded.  The two run in turn on as many ranks as there are GPUs, both without graphs, at sizes
where the GPU and not the host decides.  On one GPU that is the copy of one rank, which still holds the two clocks
against each other.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from collbench.commands.formats.imported import Hints
from collbench.commands.formats.registry import detect
from collbench.commands.formats.source import decode
from collbench.errors import CaseFailed, CollbenchError, Unsupported
from collbench.platforms.gpu import cuda, probe
from collbench.results import Reported
from collbench.units import format_size
from tools.gpu import said, scale, sweeps
from tools.gpu.archives import SCRATCH
from tools.gpu.sanitize import toolkit

SOURCE, PROGRAM = "NCCL_TESTS", "all_reduce_perf"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.gpu.nccl_tests", description="nccl-tests beside nccl of collbench.")
    parser.add_argument("--out", type=Path, required=True, help="folder for what is built and measured")
    folder: Path = parser.parse_args(arguments).out
    ranks = len(probe.memories())
    if not ranks:
        return said.no_gpu("measured")
    try:
        program = build(folder.absolute() / SCRATCH)
        ours, theirs = in_turn(program, folder, ranks)
    except Unsupported as reason:
        return said.skip(reason)
    except CollbenchError as error:
        return said.wrong(str(error))
    for key in sorted(set(ours) & set(theirs), key=lambda key: key[1]):
        times = f"{ours[key] * 1e6:.2f} us, nccl-tests {theirs[key] * 1e6:.2f} us"
        said.key(f"nccl, {key[0]} of {format_size(key[1])}, {ranks} rank(s): {times}, {ours[key] / theirs[key]:.4f}")
    apart = sweeps.disagreements(ours, theirs, scale.chosen().agreement)
    return said.wrong(f"nccl and nccl-tests: {'; '.join(apart)}") if apart else said.GOOD


def build(folder: Path) -> list[str]:
    """The command of the program, built below `folder`; Unsupported, with what is missing, where it cannot be."""
    source, nvcc = os.environ.get(SOURCE), toolkit("nvcc")
    if not source:
        raise Unsupported(f"{SOURCE} names no folder with the source of nccl-tests")
    if not (Path(source) / "src" / "Makefile").is_file():
        raise Unsupported(f"{SOURCE}={source} is not the source of nccl-tests: it has no src/Makefile")
    if not nvcc:
        raise Unsupported("there is no nvcc on the path: it comes with the CUDA toolkit")
    home, built = nccl_home(folder / "nccl"), folder / "build"
    toolkits, libraries = cuda_home(Path(nvcc), folder)
    shutil.copytree(source, folder / "source")
    settings = {"BUILDDIR": built, "NCCL_HOME": home, "NVCC": nvcc, "CUDA_HOME": toolkits, "CUDA_LIB": libraries}
    command = ["make", "-C", str(folder / "source" / "src"), f"-j{os.cpu_count()}", "NVCC_GENCODE=-arch=native"]
    command += [f"{name}={value}" for name, value in settings.items()]
    if subprocess.run([*command, str(built / PROGRAM)], stderr=subprocess.STDOUT, check=False).returncode:
        raise CaseFailed("nccl-tests could not be built: the lines above say why")
    path = os.pathsep.join(map(str, (home / "lib", libraries, os.environ.get("LD_LIBRARY_PATH", ""))))
    return ["env", f"LD_LIBRARY_PATH={path}", str(built / PROGRAM)]


def cuda_home(nvcc: Path, folder: Path) -> tuple[Path, Path]:
    """The folder of the CUDA toolkit that has its headers, and that of its libraries; Unsupported without any.

    nvcc may be a link, or a script that calls another: then that one says where it is.
    """
    named = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    places = (nvcc.resolve().parents[1:2], _said_by(nvcc, folder), named, _wheels("*/include/cuda_runtime.h"))
    for place in chain.from_iterable(places):
        if (place / "include" / "cuda_runtime.h").is_file():
            return place, next((lib for lib in (place / "lib64", place / "lib") if lib.is_dir()), place / "lib64")
    raise Unsupported(f"{nvcc} has no include/cuda_runtime.h beside its folder: name the CUDA toolkit by CUDA_HOME")


def _said_by(nvcc: Path, folder: Path) -> Iterator[Path]:
    """The folder that nvcc works from, by its own words."""
    empty = folder / "empty.cu"
    empty.parent.mkdir(parents=True, exist_ok=True)
    empty.write_text("")
    done = subprocess.run(
        [nvcc, "--dryrun", empty], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False
    )
    yield from (Path(place.strip()) for place in re.findall(r"^#\$ TOP=(.+)$", done.stdout, re.MULTILINE))


def _wheels(pattern: str) -> Iterator[Path]:
    """The folders of NVIDIA's wheels that have a file so many folders down."""
    found = importlib.util.find_spec("nvidia")
    for place in (found.submodule_search_locations or ()) if found else ():
        yield from (path.parents[1] for path in sorted(Path(place).glob(pattern)))


def nccl_home(folder: Path) -> Path:
    """A folder with include/ and lib/ of the NCCL that CuPy uses, where a linker finds it; Unsupported without headers.

    The wheel has libnccl.so.2 only, and a linker asks for libnccl.so.  A library that was brought alone has no headers:
    those of the wheel do, or what lies beside it.
    """
    wheels = list(_wheels("nccl/include/nccl.h"))
    if named := os.environ.get(cuda.NCCL_LIBRARY):
        library = Path(named).absolute()
    elif wheels:
        library = wheels[0] / "lib" / "libnccl.so.2"
    else:
        raise Unsupported("there is no wheel of NCCL to build against: pip install nvidia-nccl-cu13")
    includes = [library.parents[1] / "include", library.parent, *(wheel / "include" for wheel in wheels)]
    include = next((place for place in includes if (place / "nccl.h").is_file()), None)
    if not include:
        raise Unsupported(f"there is no nccl.h for {library}: put it beside that, or pip install nvidia-nccl-cu13")
    (folder / "lib").mkdir(parents=True)
    (folder / "include").symlink_to(include)
    for name in ("libnccl.so", "libnccl.so.2"):
        (folder / "lib" / name).symlink_to(library)
    return folder


def in_turn(program: Sequence[str], folder: Path, ranks: int) -> tuple[sweeps.Times, sweeps.Times]:
    """Seconds by collective and size, each the mean of two runs: of collbench and of nccl-tests."""
    sizes = scale.chosen().tools
    command = ("sweep", "--impl", "nccl", "--op", "allreduce", "--no-plot", "-G", "0", *sizes)
    theirs = [perf(program, ranks, sizes)]
    ours = []
    for number in range(2):
        found = sweeps.run(command, folder / f"run-{number}")
        sweeps.require_right(found)
        ours.append(sweeps.medians(found, "nccl"))
    theirs.append(perf(program, ranks, sizes))
    return sweeps.mean(ours), sweeps.mean(theirs)


def perf(program: Sequence[str], ranks: int, sizes: Sequence[str]) -> sweeps.Times:
    """What nccl-tests prints of out-of-place all-reduces, read as `collbench import` reads it."""
    options = ("-g", str(ranks), "-w", "5", *sizes)
    done = subprocess.run(
        [*program, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    sys.stdout.write(done.stdout)
    sys.stdout.flush()
    if done.returncode:
        raise CaseFailed(f"{PROGRAM} ended with exit status {done.returncode}: {said.reason(done.stdout)}")
    source = decode(PROGRAM, done.stdout.encode())
    tests = detect(source).read(source, Hints(ranks=ranks, collective="allreduce"))
    rows = [result for test in tests for result in test.results if isinstance(result, Reported) and result.right]
    return {(row.case.collective.name, row.case.nbytes): row.typical for row in rows if not row.case.in_place}


if __name__ == "__main__":
    sys.exit(main())
