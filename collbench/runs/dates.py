"""The words of --since and --until as seconds since 1970; without a zone they mean local time."""

import re
from datetime import datetime, timedelta

from collbench.errors import UsageError

_AGO = re.compile(r"(\d{1,5})([hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def first_second(text: str, option: str = "--since") -> float:
    """The first moment that counts: `7d` is seven days ago, a date its midnight; UsageError for other words."""
    try:
        if ago := _AGO.fullmatch(text):
            return (datetime.now() - int(ago[1]) * _UNITS[ago[2]]).timestamp()
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{option} {text!r} is no time; write 2026-11-01, 2026-11-01T12:00, 12h, 7d or 2w (ago)"
        ) from None


def last_second(text: str) -> float:
    """The last moment that counts: of a date without a time, the end of that day."""
    if not _DAY.fullmatch(text):
        return first_second(text, "--until")
    first_second(text, "--until")
    return (datetime.fromisoformat(text) + timedelta(days=1)).timestamp() - 1e-6
