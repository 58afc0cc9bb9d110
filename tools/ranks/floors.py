"""Ranks with tiny caches measure collectives with floors: `mpiexec -n N python -m ... COLLECTIVE...`.

Rank 0 prints lines of JSON: the kind of stores that the ranks chose, and the results of a run file.
"""

import json
import sys

from mpi4py import MPI

from collbench.algorithms import implementations, needs
from collbench.cases import Sampling, Sweep
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.measure.sampling import measure
from collbench.platforms import open_platform
from collbench.platforms.cpu.platform import CpuPlatform
from collbench.platforms.mpi_processes import MpiProcesses
from collbench.runfile.schema import to_line

KIB = 2**10


def main() -> None:
    team = MpiProcesses.of_world()
    names = ("mpi", "two-shot", "ring-flags")
    sampling = Sampling(iters=3)
    for in_place in (False, True):
        every = tuple(COLLECTIVES[name] for name in sys.argv[1:])
        kinds = (DATATYPES["float"],), (REDUCTIONS["sum"],)
        sweep = Sweep(every, (KIB, 256 * KIB), *kinds, team.size, names, in_place=in_place, sampling=sampling)
        platform = open_platform(sweep, needs(names, team.size, "cpu"), "cpu", team)
        assert isinstance(platform, CpuPlatform)
        platform.clock._cache = 16 * KIB
        lines = [{"streamed": platform.launcher.streamed}]
        for case in sweep.cases():
            lines += map(to_line, measure(case, [implementations()[name] for name in names], platform, sampling))
        if team.leader:
            sys.stdout.writelines(json.dumps(line) + "\n" for line in lines)
        platform.close()
    MPI.Finalize()


if __name__ == "__main__":
    main()
