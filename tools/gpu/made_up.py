"""A machine with a made-up GPU and a made-up CUDA toolkit, for the programs of tools/gpu in processes of their own."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tools import ROOT
from tools.gpu import scale
from tools.stand_in.ipc import build_driver
from tools.stand_in.simulate import build_extension
from tools.stand_in.whole_commands import MADE_UP, surroundings

SECONDS = 110
MARK = "MADE_UP_FOLDER"
CLEAN = 'shift 4; exec "$@"'
HANGING = 'shift 4; echo $$ > "$MADE_UP_FOLDER/hangs"; sleep 600'
UNCLEAN = 'echo "========= Race reported between write and read"; "$@"; exit 9'.replace('"$@"', 'shift 4; "$@"')
MPS = 'if [ "$1" = -f ]; then exec sleep 600; else cat > /dev/null; fi'
NVCC = """while [ "$1" != -o ]; do shift; done
cat > "$2" <<'END'
#!/bin/sh
case "$LD_LIBRARY_PATH" in */nccl/lib:*) ;; *) echo "error: another NCCL"; exit 1;; esac
cat <<'ROWS'
# nThread 1 nGpus 1 minBytes 64 maxBytes 64 step: 4(factor) warmup iters: 5 iters: 2 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid      1 on       node device  0 [0000:00:00] Test GPU
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
          64            16     float     sum      -1    50.00    0.00    0.00      0     1.00    0.00    0.00      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0
#
ROWS
END
chmod +x "$2"
"""
MAKEFILE = """$(BUILDDIR)/all_reduce_perf: all_reduce.cu
\tmkdir -p $(BUILDDIR)
\tcat $(NCCL_HOME)/include/nccl.h $(NCCL_HOME)/lib/libnccl.so > /dev/null
\t$(NVCC) -I$(NCCL_HOME)/include -L$(NCCL_HOME)/lib -o $@ $< -lnccl
"""


@cache
def _driver(folder: Path, devices: int) -> Path:
    """Built once for all tests."""
    (folder / f"driver-{devices}").mkdir()
    return build_driver(folder / f"driver-{devices}", devices)


@cache
def _nccl(folder: Path) -> Path:
    """The same."""
    return build_extension(folder / "made-up-nccl")


class MadeUp:
    """The machine; what runs on it finds its toolkit before all others."""

    def __init__(self, folder: Path, **machine: Any) -> None:
        self.folder = folder
        devices = machine.setdefault("devices", 1)
        shutil.copy(_driver(folder.parent, devices), folder)
        extension = shutil.copytree(_nccl(folder.parent).parent, folder / "nccl" / "lib") / "extension.so"
        (folder / "nccl" / "include").mkdir()
        (folder / "nccl" / "include" / "nccl.h").write_text("")
        (folder / "include").mkdir()
        (folder / "include" / "cuda_runtime.h").write_text("")
        (folder / "nccl-tests" / "src").mkdir(parents=True)
        (folder / "nccl-tests" / "src" / "Makefile").write_text(MAKEFILE)
        (folder / "nccl-tests" / "src" / "all_reduce.cu").write_text("")
        simulation = {"extension": str(extension), "expects": 1000.0, "each": 0.01}
        fields = {"multiprocessors": 16, "simulation": simulation} | machine
        self.environment = surroundings(folder) | {
            "MADE_UP_MACHINE": json.dumps(fields),
            "PYTHONPATH": os.pathsep.join((str(MADE_UP), str(ROOT))),
            "PATH": os.pathsep.join((str(folder / "bin"), os.environ["PATH"])),
            "COLLBENCH_NCCL": str(extension.with_name("libnccl.so.2")),
            "NCCL_TESTS": str(folder / "nccl-tests"),
            "CAMPAIGN": str(folder / "out"),
            scale.VARIABLE: "small",
            MARK: str(folder),
        }
        for name in ("PYTHONDONTWRITEBYTECODE", "STAGE", "BUDGET", "LIMIT", "OUT", "CUPY_CACHE_DIR"):
            self.environment.pop(name, None)
        self.provide("compute-sanitizer", CLEAN)
        self.provide("nvidia-cuda-mps-control", MPS)
        self.provide("nvcc", NVCC)

    def provide(self, program: str, text: str) -> None:
        """A program of the toolkit, as a script."""
        path = self.folder / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def start(self, program: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """`python -m tools.gpu.PROGRAM`, left running."""
        return subprocess.Popen(
            [sys.executable, "-m", f"tools.gpu.{program}", *arguments],
            cwd=ROOT,
            env=self.environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, program: str, *arguments: str, **variables: str) -> tuple[int, str]:
        """The same to its end: exit status and all that it printed."""
        process = self.start(program, *arguments, **variables)
        try:
            said, _ = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
        return process.returncode, said

    def page(self) -> str:
        """The campaign's page."""
        return (self.folder / "out" / "summary.md").read_text()

    def record(self, stage: str) -> dict[str, Any]:
        """What a campaign noted of a stage."""
        found: dict[str, Any] = json.loads((self.folder / "out" / stage / "result.json").read_text())
        return found

    def left(self) -> list[int]:
        """The processes on this machine."""
        word, found = f"{MARK}={self.folder}".encode(), []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if word in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found
