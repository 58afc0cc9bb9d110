"""What ranks say once they are ready: what connects them, and with what they measure, for the header of the run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from collbench.runfile.header import Interleaved


@dataclass(frozen=True)
class Greeting:
    """What holds for the whole run; empty before the ranks have said it."""

    topology: Mapping[str, Any] = field(default_factory=dict)  # a header's
    versions: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    pids: tuple[int, ...] = ()  # of each rank
    cores: tuple[int, ...] = ()  # of each rank, where they are bound
    starts: int = 1  # how often the ranks were started
    interleaved: Interleaved = field(default_factory=Interleaved)  # which half of a pair it is

    def moved(self, before: "Greeting") -> str:
        """Why these ranks cannot go on for those before them, which stood elsewhere; "" if they can.

        A lost GPU is dealt no ranks any more: the header, and all that is drawn by it, would be of another run.
        """
        now, then = _places(self.topology), _places(before.topology)
        if len(now) != len(then):
            return f"fresh ranks have {len(now)} GPU{'s' * (len(now) != 1)} where the run began on {len(then)}"
        return "fresh ranks are on other GPUs than the run began on" if now != then else ""


class Opened(Protocol):
    """Ranks that are there inside `with`."""

    greeting: Greeting  # known then

    def __enter__(self) -> Any: ...

    def __exit__(self, *exception: Any) -> None: ...


def _places(topology: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Node and bus of every GPU; what else is known of them may change as they fail."""
    return [(gpu.get("host", ""), gpu.get("bus_id", "")) for gpu in topology.get("gpus", ())]
