"""A word on noise behind a sweep's table: how wide intervals are, what else the machine did, and what helps."""

import math
from collections.abc import Iterator, Sequence

from collbench.measure.disturbance import Watch
from collbench.platforms import platforms
from collbench.results import Measurement, Result
from collbench.units import format_size

WIDE = 0.10  # half an interval over the median, from which on a row is called noisy
FEWEST = 6  # samples that have an interval


def words(results: Sequence[Result], watch: Watch) -> Iterator[str]:
    """Lines for stderr; none where the rows are as sharp as they should be."""
    rows = [result for result in results if isinstance(result, Measurement) and result.right and not result.disturbed]
    few = [row for row in rows if len(row.times) < FEWEST]
    if few:
        yield (
            f"{len(few)} of {len(rows)} rows have fewer than {FEWEST} samples, and so no interval; "
            "nothing is said of who is faster there (more: -n, or a larger --budget)"
        )
    wide = [row for row in rows if WIDE < row.relative_halfwidth < math.inf]
    if not wide:
        return
    worst = max(wide, key=lambda row: row.relative_halfwidth)
    width = worst.relative_halfwidth
    yield (
        f"noise: {len(wide)} of {len(rows)} rows are known to more than ± {WIDE:.0%} only, the worst to ± {width:.0%} "
        f"({worst.implementation} at {format_size(worst.case.nbytes)}); what is not told apart is not called faster"
    )
    here = max((row.case.ranks for row in rows if row.platform == "cpu"), default=1)
    for reason in watch.reasons(here):
        yield f"  {reason}"
    kinds = [platforms()[name] for name in dict.fromkeys(row.platform for row in wide) if name in platforms()]
    helps = [kind.steadier for kind in kinds if kind.steadier]
    yield f"  what helps: {', '.join([*helps, '--budget 5 or --starts 5'])}, and a second run"
