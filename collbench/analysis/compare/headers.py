"""What the headers of two runs say differently: hardware, host, versions, variables, settings.

A header may come from anywhere and hold anything, so nothing of it is relied on.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from collbench.runfile.header import Header
from collbench.units import printable

_TOLD = (  # parts of a header, outermost first; what changes from run to run of itself is in none
    ("collbench",),
    ("environment",),
    ("topology",),
    ("sweep", "sampling"),
    ("sweep", "spin"),
    ("sweep", "bind"),
    ("sweep", "starts"),
    ("sweep", "ranks"),
    ("sweep", "in_place"),
    ("interleaved", "setting"),
)
_FLEETING = {"shm_free"}
_LONGEST = 60  # characters of a value that are shown
_ABSENT = object()
_COUNT = re.compile(r"^\d+ (ranks? on \d+ )?x ")


class Difference(NamedTuple):
    """A fact by its place in the header, and what either run says; `-` where it says nothing."""

    name: str
    base: str
    new: str


def differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """All of them, in the order of the header's parts."""
    for path in _TOLD:
        yield from _between(".".join(path), _at(base, path), _at(new, path))


def machine(header: Header) -> tuple[str, ...]:
    """What tells the machine of a run from others: the GPUs or sockets that ranks live on, or the model; () if unknown.

    Not how many there are, nor the host's name, which changes with every container.  A log of another tool has them in
    its topology's name, `8 x NVIDIA H100 on 2 nodes`.
    """
    topology = header.topology
    if topology.model:
        return ("model", topology.name)
    devices = topology.gpus if topology.platform == "gpu" else topology.sockets
    names = {device.name for device in devices} or {_COUNT.sub("", topology.name)}
    known = sorted(name for name in names if name and "unknown" not in name)
    return (topology.platform, *known) if known else ()


def several_machines(headers: Iterable[Header]) -> bool:
    """Whether some of the runs are known to be of different machines or systems."""
    return len({machine(header) for header in headers} - {()}) > 1


def _at(header: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(header, Mapping) or name not in header:
            return _ABSENT
        header = header[name]
    return header


def _between(name: str, one: Any, other: Any) -> Iterator[Difference]:
    parts = [value for value in (one, other) if isinstance(value, Mapping)]
    if all(isinstance(value, Mapping) or value is _ABSENT for value in (one, other)):
        for key in dict.fromkeys(key for part in parts for key in part if key not in _FLEETING):
            yield from _between(f"{name}.{key}", _at(one, (key,)), _at(other, (key,)))
    elif one is not other and one != other:
        yield Difference(printable(name), _text(one), _text(other))


def _text(value: Any) -> str:
    if value is _ABSENT:
        return "-"
    text = printable(value if isinstance(value, str) else json.dumps(value, default=str))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
