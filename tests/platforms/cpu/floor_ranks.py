"""Ranks whose caches are next to nothing measure cases with their floors: `mpiexec -n N python -m ...floor_ranks NAME...`.

Prints, as lines of JSON from rank 0, what stores the ranks chose and the results as a run file has them.
"""

import json
import sys

from mpi4py import MPI

from collbench.cases import Sampling, Sweep
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.implementations import implementations, needs
from collbench.measure.runner import measure
from collbench.platforms import open_platform
from collbench.platforms.cpu.platform import CpuPlatform
from collbench.platforms.processes import Processes
from collbench.runs.records import to_line

KIB = 2**10


def main() -> None:
    team = Processes.of_world()
    names = ("mpi", "two-shot", "ring-flags")
    sampling = Sampling(iters=3)
    for in_place in (False, True):
        sweep = Sweep(
            tuple(COLLECTIVES[name] for name in sys.argv[1:]),
            (KIB, 256 * KIB),
            (DATATYPES["float"],),
            (REDUCTIONS["sum"],),
            team.size,
            names,
            in_place=in_place,
            sampling=sampling,
        )
        platform = open_platform(sweep, needs(names, team.size, "cpu"), "cpu", team)
        assert isinstance(platform, CpuPlatform)
        platform._cache = 16 * KIB
        streamed = platform.streamed
        if team.leader:
            sys.stdout.write(json.dumps({"streamed": streamed}) + "\n")
        for case in sweep.cases():
            for result in measure(case, [implementations()[name] for name in names], platform, sampling):
                if team.leader:
                    sys.stdout.write(json.dumps(to_line(result)) + "\n")
        platform.close()
    MPI.Finalize()


if __name__ == "__main__":
    main()
