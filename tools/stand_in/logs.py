"""Logs of traced kernels as devices would have left them, and clocks of devices that disagree."""

from typing import Any

import numpy as np

from collbench.platforms import tracelog


def log_of(*stamps: tuple[str, int], start: int = 1000, nanoseconds: tuple[int, int] = (0, 100)) -> Any:
    """A log whose fine clock makes ten ticks in a nanosecond, as a kernel would have left it."""
    log = np.zeros(1, tracelog.LOG)
    log["nanoseconds"], log["stamps"] = nanoseconds, len(stamps)
    log["ticks"] = start, start + 10 * (nanoseconds[1] - nanoseconds[0])
    for place, (phase, ticks) in enumerate(stamps[: log["stamp"].shape[1]]):
        log["stamp"][0, place] = ticks, tracelog._PHASES.index(phase)
    return log


def skew(rank_stream: Any, nanoseconds: int, faster: int = 1) -> None:
    """From now on this device's clock for logs is ahead by so much, and its fine clock ticks so many times as fast."""
    fetch = rank_stream.fetch

    def skewed(address: int, into: Any) -> Any:
        got = fetch(address, into)
        if got.dtype == tracelog.LOG:
            used = got["stamps"] > 0
            got["nanoseconds"][used] += np.uint64(nanoseconds)
            for name in ("ticks", "spent"):
                got[name][used] *= np.uint64(faster)
            got["stamp"]["ticks"][used] *= np.uint64(faster)
        elif got.dtype == np.uint64:
            got += np.uint64(nanoseconds)
        return got

    rank_stream.fetch = skewed
