# ruff: noqa: T201 - a program of its own, which prints
"""`python -m tests.gpu.run` from a checkout: every check on every arrangement of ranks, one line each.

Needs no pytest; `pytest -m gpu tests/gpu` runs the same checks.  Exit status 0 good, 1 a check failed, 2 no GPU.
"""

import faulthandler
import sys
import time

from collbench.errors import CollbenchError, PlatformError, Unsupported
from collbench.implementations import Implementation
from collbench.platforms import Platform, gpu
from tests.gpu.checks import CHECKS, ON_GPU, PLACES, Place, opened
from tests.gpu.processes import ARRANGEMENTS, Arrangement, outcomes

PATIENCE = 300  # seconds for one check before all threads' stacks are shown and the process ends


def main() -> int:
    failures = 0
    if not gpu.available():
        print(
            "collbench: error: no GPU here, so nothing was tested: run this where nvidia-smi shows one", file=sys.stderr
        )
        return 2
    try:
        for place in PLACES:
            failures += run_place(place)
        for arrangement in ARRANGEMENTS:
            failures += run_processes(arrangement)
    except PlatformError as error:
        print(f"collbench: error: {error}", file=sys.stderr)
        return 2
    print(f"{failures} failed" if failures else "all checks passed")
    return 1 if failures else 0


def run_place(place: Place) -> int:
    print(f"\n{place}", flush=True)
    failures = 0
    try:
        for implementation in ON_GPU:
            with opened(place) as platform:
                if implementation is ON_GPU[0]:
                    print(f"  {platform.versions()}", flush=True)
                failures += run_implementation(platform, implementation)
    except Unsupported as reason:
        print(f"  skipped: {reason}", flush=True)
    return failures


def run_processes(arrangement: Arrangement) -> int:
    print(f"\n{arrangement}", flush=True)
    try:
        found = outcomes(arrangement)
    except Unsupported as reason:
        found = {"": f"skipped: {reason}"}
    for name, outcome in found.items():
        print(f"  {name:<24} {outcome}", flush=True)
    return sum(outcome.startswith("FAILED") for outcome in found.values())


def run_implementation(platform: Platform, implementation: Implementation) -> int:
    failures = 0
    for check in CHECKS:
        start = time.monotonic()
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        try:
            check(platform, implementation)
            outcome = "ok"
        except Unsupported as reason:
            outcome = f"skipped: {reason}"
        except (AssertionError, CollbenchError) as error:
            failures += 1
            outcome = f"FAILED: {error}"
        faulthandler.cancel_dump_traceback_later()
        name = f"{implementation.name}: {check.__name__.replace('_', ' ')}"
        print(f"  {name:<56} {time.monotonic() - start:6.1f} s  {outcome}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
