"""Libraries for what is asked of the GPUs before any rank starts: a driver, NVML, and a CuPy with little in it."""

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
int cuDeviceGetPCIBusId(char* name, int length, int device) { *name = 'A' + device; name[1] = 0; return 0; }
int cuDeviceTotalMem_v2(unsigned long* nbytes, int device) { *nbytes = (1UL << 33) + device; return 0; }
#ifdef WORDS
int cuGetErrorString(int, const char** text) { *text = WORDS; return 0; }
#endif
}
"""

NVML = """
#include <stdlib.h>
extern "C" {
int nvmlInit_v2() { if (STATUS < 0) abort(); return STATUS; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* name, const char** handle) { *handle = name; return 0; }
int nvmlDeviceGetMemoryInfo(const char* handle, unsigned long long* memory) {
  memory[0] = 1ULL << 33;
  memory[1] = (1ULL * FREE << 20) / (*handle == 'A' ? 1 : 4);
  memory[2] = memory[0] - memory[1];
  return 0;
}
}
"""


def build_driver(folder: Path, devices: int = 0, status: int = 0, delay: int = 0, words: str = "") -> Path:
    """A driver that answers after `delay` ms, with an error or `devices` GPUs; a negative status ends the process."""
    defines = [f"-DDEVICES={devices}", f"-DSTATUS={status}", f"-DDELAY={delay}"]
    return _build(folder / "libcuda.so.1", DRIVER, *defines, *([f'-DWORDS="{words}"'] if words else []))


def build_nvml(folder: Path, free: int, status: int = 0) -> Path:
    """NVML of GPUs of 8 GiB; on the first `free` MiB are free, on the others a quarter of that."""
    return _build(folder / "libnvidia-ml.so.1", NVML, f"-DFREE={free}", f"-DSTATUS={status}")


def _build(library: Path, text: str, *defines: str) -> Path:
    source = library.with_suffix(".cpp")
    source.write_text(text)
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
