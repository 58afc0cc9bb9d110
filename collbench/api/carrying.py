"""From a session to a run, and from a caller's words to those of the command line."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collbench.api.patience import started
from collbench.errors import Notice
from collbench.measure.disturbance import disturbed_in_words
from collbench.measure.session import Session, exit_status
from collbench.results import Result
from collbench.runfile.store import NAME, Run

SIZES = ("minbytes", "maxbytes", "stepbytes")
Size = int | str
"""Bytes, or a size as on the command line: 8, "64K", "1.5G"; suffixes are binary."""


def carried_out(session: Session, each: Callable[[Result], object] | None = None) -> Run:
    """The session's results as a run, whether it is stored or not; `each` is called with every one as it arrives."""
    with started(session):
        for result in session.run():
            if each:
                each(result)
    if advice := disturbed_in_words(session.results):
        warnings.warn(advice, Notice, stacklevel=3)
    path = session.path or Path(NAME)
    return Run(path, session.header, tuple(session.results), True, exit_status(session.results))


def as_options(words: Mapping[str, Any]) -> dict[str, Any]:
    """A function's arguments as the options of the command line that they are called after."""
    return {name: _text(value) for name, value in words.items()} | {
        **{name: None if words[name] is None else str(words[name]) for name in SIZES},
        "check": 1,
        "no_graph": False,
    }


def _text(value: Any) -> Any:
    """Several names as one text with commas."""
    several = isinstance(value, Sequence) and not isinstance(value, str)
    return ",".join(map(str, value)) if several else value
