"""What ranks say once they are ready: what connects them, and with what they measure, for the header of the run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collbench.runs.header import Interleaved


@dataclass(frozen=True)
class Greeting:
    """What holds for the whole run; empty before the ranks have said it."""

    topology: Mapping[str, Any] = field(default_factory=dict)  # a header's
    versions: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    pids: tuple[int, ...] = ()  # of each rank
    cores: tuple[int, ...] = ()  # of each rank that is pinned
    interleaved: Interleaved = field(default_factory=Interleaved)  # which half of a pair it is
