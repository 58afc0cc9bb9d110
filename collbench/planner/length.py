"""How long a training run is, and how long it may take, by a user's words or as is usual."""

import re

from collbench.errors import UsageError
from collbench.planner.models import Model

TOKENS_A_PARAMETER = 20
"""Of a run whose length is not said (Hoffmann et al. 2022, arXiv:2203.15556, table A3: about 20 at every size)."""
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def usual_tokens(model: Model) -> float:
    """Of a run whose length is not said: as published, or so many a parameter that a token meets."""
    return model.trained or TOKENS_A_PARAMETER * model.active


def parse_duration(text: str, option: str) -> float:
    """Seconds of `30d`, `12h`, `90m`; UsageError for what is none."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|min|h|d)", text.strip())
    if not match or not float(match[1]):
        raise UsageError(f"{option} {text!r} is no duration; write one such as 30d, 12h or 90m")
    return float(match[1]) * _UNITS[match[2]]
