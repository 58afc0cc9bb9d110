"""Libraries for what is asked of the GPUs before any rank starts: a driver, and a CuPy with little in it."""

import subprocess
from pathlib import Path

from collbench.platforms.compiler import compiler

DRIVER = """
#include <stdlib.h>
#include <unistd.h>
extern "C" {
int cuInit(unsigned) { usleep(1000 * DELAY); if (STATUS < 0) abort(); return STATUS; }
int cuDeviceGetCount(int* count) { *count = DEVICES; return 0; }
int cuDeviceGet(int* device, int index) { *device = index; return 0; }
int cuDeviceTotalMem_v2(unsigned long* nbytes, int device) { *nbytes = (1UL << 33) + device; return 0; }
#ifdef WORDS
int cuGetErrorString(int, const char** text) { *text = WORDS; return 0; }
#endif
}
"""


def build_driver(folder: Path, devices: int = 0, status: int = 0, delay: int = 0, words: str = "") -> Path:
    """A driver that answers after `delay` ms, with an error or `devices` GPUs; a negative status ends the process."""
    defines = [f"-DDEVICES={devices}", f"-DSTATUS={status}", f"-DDELAY={delay}"]
    defines += [f'-DWORDS="{words}"'] if words else []
    library, source = folder / "libcuda.so.1", folder / "libcuda.cpp"
    source.write_text(DRIVER)
    subprocess.run([*compiler(), *defines, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def put_cupy(folder: Path, runtime: str) -> None:
    """A package of that name with as much as is asked first."""
    (folder / "cupy" / "cuda").mkdir(parents=True, exist_ok=True)
    (folder / "cupy" / "__init__.py").write_text("from cupy import cuda\n")
    (folder / "cupy" / "cuda" / "__init__.py").write_text(
        "from types import SimpleNamespace\nfrom cupy.cuda import nccl\n"
        f"runtime = {runtime}\n"
        "driver = SimpleNamespace(CUDADriverError=OSError)\n"
    )
    (folder / "cupy" / "cuda" / "nccl.py").write_text("available = False\n")
