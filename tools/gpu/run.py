"""`python -m tools.gpu.run --ranks 4 --how launches`: every check on one arrangement of ranks.

Each arrangement takes a process, because NCCL reads its environment once.  pytest is not needed.  Exit status: said.py.
"""

import argparse
import faulthandler
import sys
import time
from collections.abc import Collection, Sequence

from collbench.algorithms import Implementation, choose
from collbench.errors import CollbenchError, PlatformError, Unsupported
from collbench.platforms.gpu import platform as gpu
from collbench.platforms.gpu import probe
from tools.gpu import refusals, said
from tools.gpu.checks import CHECKS, case
from tools.gpu.places import ON_GPU, SCALE, Place, nccl_settings, opened

HOW = {"launches": False, "graphs": True}
PATIENCE = 200  # seconds for one check, after which the process prints all stacks and ends


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.gpu.run", description="The checks on one arrangement of ranks.")
    parser.add_argument("--ranks", type=int, default=0, help="that share the first GPU; 0: a rank on every GPU")
    parser.add_argument(
        "--how", choices=HOW, action="append", help="one of them only; default: first one, then the other"
    )
    names = [check.__name__ for check in CHECKS]
    parser.add_argument("--check", choices=names, action="append", help="this one only; default: all")
    parser.add_argument("--impl", default="all", help="implementations, as in collbench sweep")
    chosen = parser.parse_args(arguments)
    if not probe.available():
        return said.no_gpu("tested")
    places = [
        Place(1 if chosen.ranks else None, min(chosen.ranks, SCALE.most_ranks), HOW[how]) for how in chosen.how or HOW
    ]
    ways = [way for way in ON_GPU if way.name in choose(chosen.impl, "gpu")]
    try:
        return worst([run_place(place, ways, chosen.check or names) for place in places])
    except PlatformError as error:
        return said.wrong(str(error))


def worst(statuses: Sequence[int]) -> int:
    """Return the status of several parts: wrong if one is, skipped if all are."""
    return max((status for status in statuses if status != said.SKIPPED), default=said.SKIPPED)


def run_place(place: Place, chosen: Sequence[Implementation], checks: Collection[str]) -> int:
    """Run the named checks, each implementation on a platform of its own; return the exit status."""
    print(f"{place}", flush=True)
    done: list[str] = []
    try:
        for implementation in chosen:
            with opened(place) as platform:
                if implementation is chosen[0]:
                    print(f"  {platform.versions()}\n  {nccl_settings(platform)}", flush=True)
                done += run_implementation(platform, implementation, checks)
    except Unsupported as reason:
        return said.skip(reason)
    return _sum_up(place, chosen, done)


def run_implementation(platform: gpu.GpuPlatform, implementation: Implementation, checks: Collection[str]) -> list[str]:
    """Print a line for each check, and return the outcomes: `ok`, `skipped: reason` or `FAILED: reason`."""
    outcomes = []
    for check in (check for check in CHECKS if check.__name__ in checks):
        start = time.monotonic()
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        try:
            check(implementation.home(platform, case(platform)), implementation)
            outcome = "ok"
        except Unsupported as reason:
            defect = refusals.unjust(implementation.name, str(reason), refusals.here_of(platform))
            outcome = f"{said.WRONG}{defect}" if defect else f"{said.SKIP}{reason}"
        except (AssertionError, CollbenchError) as error:
            outcome = f"{said.WRONG}{error}"
        faulthandler.cancel_dump_traceback_later()
        name = f"{implementation.name}: {check.__name__.replace('_', ' ')}"
        print(f"  {name:<56} {time.monotonic() - start:6.1f} s  {outcome}", flush=True)
        outcomes.append(outcome)
    return outcomes


def _sum_up(place: Place, chosen: Sequence[Implementation], outcomes: Sequence[str]) -> int:
    right, failed = outcomes.count("ok"), sum(outcome.startswith(said.WRONG) for outcome in outcomes)
    if not right and not failed:
        return said.skip("; ".join(dict.fromkeys(outcome.removeprefix(said.SKIP) for outcome in outcomes)))
    skipped = len(outcomes) - right - failed
    counts = f"{right} hold, {failed} do not, {skipped} are not possible"
    said.key(f"{place}: of {len(outcomes)} checks of {len(chosen)} implementations {counts}")
    return said.BAD if failed else said.GOOD


if __name__ == "__main__":
    sys.exit(main())
