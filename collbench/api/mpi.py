"""`collbench sweep --mpi`: from its words to libraries, and the ranks that measure with them."""

from collections.abc import Mapping, Sequence
from typing import Any

from collbench.cases import Sweep
from collbench.errors import UsageError
from collbench.measure.interleave import LIBRARY_PLATFORM, MultiLibrary
from collbench.platforms.cpu.mpi_libraries import Library, find


def mpi_libraries(options: Mapping[str, Any], launched: tuple[int, int] | None) -> list[Library]:
    """Those of --mpi, none without it; UsageError for one that is not here, and where there can be none."""
    words = [word.strip() for word in options["mpi"].split(",") if word.strip()]
    if words and options["on"] not in ("auto", LIBRARY_PLATFORM):
        raise UsageError(f"--mpi names libraries of ranks on a CPU, and these are on {options['on']}; leave one out")
    if words and launched:
        raise UsageError(
            "--mpi starts ranks of its own for each library, which it cannot do under a launcher (mpirun, srun); "
            "start collbench without one, or with the launcher of the library and without --mpi"
        )
    if words and options["starts"] not in (None, 1):
        raise UsageError("--mpi starts the ranks once for each library; leave --starts out")
    return [find(word) for word in words]


def with_libraries(platform: str, sweep: Sweep, libraries: Sequence[Library]) -> tuple[str | MultiLibrary, Sweep]:
    """Who carries a sweep out with these, or the platform without any; and the sweep with the names of its rows."""
    if not libraries:
        return platform, sweep
    if platform != LIBRARY_PLATFORM:
        raise UsageError(f"--mpi names libraries of ranks on a CPU, and --on auto takes the {platform}; add --on cpu")
    ranks = MultiLibrary(sweep, libraries)
    return ranks, ranks.sweep
