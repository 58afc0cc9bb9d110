"""`python -m tools.gpu.facts`: what this GPU is, and how fast it copies: a first useful number within a minute."""

import sys

from collbench.errors import CollbenchError
from collbench.platforms.gpu import cuda as gpu_cuda
from collbench.platforms.gpu import nccl as gpu_nccl
from collbench.platforms.gpu import probe
from collbench.units import format_rate, format_size
from tools.gpu import refusals, said, scale, sweeps
from tools.gpu.bench import cache_bandwidth, copy_bandwidth
from tools.gpu.places import Place, opened


def main() -> int:
    if not probe.available():
        return said.no_gpu("looked at")
    try:
        for line in of_devices(gpu_cuda.Cuda(gpu_cuda.load_cupy())):
            said.key(line)
        with opened(Place(1, 1), largest=scale.chosen().copied) as platform:
            bandwidth = copy_bandwidth(platform, scale.chosen().copied)
            said.key(f"a copy within the GPU reads and writes {format_rate(bandwidth)} GB/s")
            said.key(f"a copy within its cache reads and writes {format_rate(cache_bandwidth(platform))} GB/s")
    except CollbenchError as error:
        return said.wrong(str(error))
    return of_topology(*sweeps.printed(("topo", "--on", "gpu")))


def of_topology(status: int | None, text: str) -> int:
    """What `collbench topo` shows, which it can without NVML too."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    if status != said.GOOD or not first:
        return said.wrong(f"collbench topo: {said.reason(text)}")
    said.key(f"collbench topo: {first}")
    return said.GOOD


def of_devices(cuda: gpu_cuda.Cuda) -> list[str]:
    """A line for every GPU, and one for what drives them."""
    lines = []
    for device in range(cuda.count()):
        cuda.runtime.setDevice(device)
        free, total = cuda.runtime.memGetInfo()
        lines.append(
            f"GPU {device}: {cuda.name(device)}, {cuda.multiprocessors(device)} multiprocessors, "
            f"L2 {format_size(cuda.cache(device))}, memory {format_size(total)}, {format_size(free)} of it free"
        )
    version = refusals.nccl_version(cuda.nccl)
    driver, runtime = cuda.runtime.driverGetVersion(), cuda.runtime.runtimeGetVersion()
    nvrtc = ".".join(map(str, cuda.cupy.cuda.nvrtc.getVersion()))
    lines.append(
        f"driver for CUDA {_dotted(driver)}, runtime {_dotted(runtime)}, NVRTC {nvrtc}, CuPy {cuda.cupy.__version__}, "
        f"NCCL {gpu_nccl.in_words(version) if version else 'missing'}"
    )
    return lines


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


if __name__ == "__main__":
    sys.exit(main())
