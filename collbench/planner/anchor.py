"""An anchor: a step that was measured, which moves what computing is expected to reach for everything else.

What an anchor is made for is what no model knows: how fast this software computes on these GPUs.  Communication stays
as its curves have it.
"""

import re
from dataclasses import dataclass, replace
from math import inf

from collbench.errors import UsageError
from collbench.planner.layout import Said, parse_layout
from collbench.planner.planner import Planned, reckon_one
from collbench.planner.planning import best_of, resized
from collbench.planner.setting import Setting

FASTEST, SLOWEST = 0.05, 5.0
"""What computing may reach of what is expected; beyond, the anchor is of something else."""
_FORM = "write it as 32s or 45%, and after commas gpus=1024, batch=1536, layout=tp8 pp16"


@dataclass(frozen=True)
class Anchor:
    """A measured step, in seconds or as the share of the GPUs' FLOP/s, of a run that may be another one."""

    value: float
    utilisation: bool
    gpus: int = 0  # 0: as many as are planned for; likewise the batch
    batch: int = 0
    said: Said | None = None  # None: as is said of the layouts planned


def parse_anchor(text: str) -> Anchor:
    """`32s`, `450ms`, `45%`, `32s,gpus=1024,layout=tp8 pp16`; UsageError for anything else."""
    first, *words = (word.strip() for word in text.split(","))
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(s|ms|%)", first)
    if not match or not float(match[1]) or (match[2] == "%" and float(match[1]) > 100):
        raise UsageError(f"--anchor {text!r} is no measured step; {_FORM}")
    value = float(match[1]) * {"s": 1.0, "ms": 1e-3, "%": 0.01}[match[2]]
    known: dict[str, int | Said] = {}
    for word in words:
        name, _, said = word.partition("=")
        if name in ("gpus", "batch") and re.fullmatch(r"[1-9]\d{0,8}", said):
            known[name] = int(said)
        elif name == "layout":
            known["said"] = parse_layout(said)
        else:
            raise UsageError(f"--anchor {text!r}: {word!r} is no word of it; {_FORM}")
    return Anchor(value, match[2] == "%", **known)  # type: ignore[arg-type]


def anchored(given: Setting, anchor: Anchor, said: Said) -> tuple[Setting, Planned]:
    """The setting with computing as fast as the anchor says, and the layout that it was read of.

    UsageError where no speed of computing explains the anchor.
    """
    asked = resized(given, anchor.gpus) if anchor.gpus else given
    if not asked:
        raise UsageError(f"--anchor gpus={anchor.gpus} cannot be had of {given.machine.name}; leave it out")
    asked = replace(asked, loader=inf, job=replace(asked.job, batch=anchor.batch or asked.job.batch).checked())
    named = said if anchor.said is None else anchor.said
    layout = best_of(asked, named)
    wanted = _seconds(anchor, layout)
    low, high = FASTEST, SLOWEST
    for _ in range(50):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _at(asked, layout, middle).step > wanted else (low, middle)
    if not FASTEST * 1.01 < middle < SLOWEST / 1.01:
        fastest = _at(asked, layout, SLOWEST).step
        raise UsageError(
            f"--anchor {wanted:.3g} s cannot be the step of {layout.layout.name}, planned as {layout.step:.3g} s, and "
            f"{fastest:.3g} s without computing; give layout= and gpus= of the run that was measured"
        )
    return replace(given, job=replace(given.job, efficiency=middle)), _at(asked, layout, middle)


def _seconds(anchor: Anchor, layout: Planned) -> float:
    return layout.step * layout.utilisation / anchor.value if anchor.utilisation else anchor.value


def _at(given: Setting, layout: Planned, efficiency: float) -> Planned:
    return reckon_one(replace(given, job=replace(given.job, efficiency=efficiency)), layout.layout)
