"""`python -m tools.gpu.nccl_arrangements`: NCCL in one process that holds all GPUs, and in a process for every GPU.

One process registers neither its buffers nor NVLS with NCCL, so a process a GPU is NCCL's best case.  Both are
measured in turn (one, other, other, one), and the ratio of their medians is printed.  With one GPU there is nothing to
compare.  Exit status: said.py.
"""

import sys
import tempfile
from pathlib import Path

from collbench.errors import CollbenchError, Unsupported
from collbench.platforms.gpu import probe
from collbench.units import format_size
from tools.gpu import said, scale, sweeps
from tools.gpu.processes import launcher


def main() -> int:
    gpus = len(probe.memories())
    if not gpus:
        return said.no_gpu("measured")
    if gpus == 1:
        return said.skip("there is one GPU only, so nothing to compare: one process holds all there is")
    try:
        with tempfile.TemporaryDirectory() as folder:
            one, many = measured(gpus, Path(folder))
    except Unsupported as reason:
        return said.skip(reason)
    except CollbenchError as error:
        return said.wrong(str(error))
    for name, nbytes in one:
        first, second = one[name, nbytes], many[name, nbytes]
        times = f"{first * 1e6:.2f} us in one process, {second * 1e6:.2f} us in a process for every GPU"
        said.key(f"nccl, {name} of {format_size(nbytes)}, {gpus} GPUs: {times}, ratio {first / second:.3f}")
    return said.GOOD


def measured(gpus: int, folder: Path) -> tuple[sweeps.Times, sweeps.Times]:
    """Each size's mean of two medians, in one process and in one for every GPU; CaseFailed where a run has defects."""
    command = ("sweep", "--impl", "nccl", "--op", "allreduce", "--no-plot", *scale.chosen().few)
    several = launcher(gpus)
    own: tuple[list[str], dict[str, str]] = [sys.executable, "-m", "collbench"], {}
    found: dict[int, list[sweeps.Times]] = {1: [], gpus: []}
    for number, processes in enumerate((1, gpus, gpus, 1)):
        start, environment = own if processes == 1 else several
        run = sweeps.run(command, folder / str(number), start=start, environment=environment)
        sweeps.require_right(run, processes=processes)
        found[processes].append(sweeps.medians(run, "nccl"))
    return sweeps.mean(found[1]), sweeps.mean(found[gpus])


if __name__ == "__main__":
    sys.exit(main())
