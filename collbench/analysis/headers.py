"""Differences of two runs' headers, and identity of their machines."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from collbench.properties import PROPERTIES
from collbench.runfile.schema import Header
from collbench.units import printable

COMPARED_PARTS = (  # paths of a header; parts that always differ between runs are left out
    ("collbench",),
    ("environment",),
    ("topology",),
    ("sweep", "sampling"),
    ("sweep", "spin"),
    ("sweep", "bind"),
    ("sweep", "starts"),
    ("sweep", "ranks"),
    *(("sweep", name) for name in PROPERTIES),
    ("interleaved", "setting"),
)
_FLEETING = {"shm_free"}
_LONGEST = 60  # shown characters of a value
_ABSENT = object()
_COUNT = re.compile(r"^\d+ (ranks? on \d+ )?x ")


class Difference(NamedTuple):
    """A fact by its place in the header, with the values of both runs; `-` if a run has none."""

    name: str
    base: str
    new: str


def differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the differences of two headers, in the order of the header's parts."""
    for path in COMPARED_PARTS:
        yield from _between(".".join(path), _at(base, path), _at(new, path))


def machine_key(header: Header) -> tuple[str, ...]:
    """Return a key of a run's machine; () if unknown.

    The key is the kinds of GPUs or sockets of the ranks, or the model.  Their number does not count, and the host's
    name changes with every container.  A log of another tool has the GPUs in the name of its topology, `8 x NVIDIA H100
    on 2 nodes`.
    """
    topology = header.topology
    if topology.model:
        return ("model", topology.name)
    devices = topology.gpus if topology.platform == "gpu" else topology.sockets
    names = {device.name for device in devices} or {_COUNT.sub("", topology.name)}
    known = sorted(name for name in names if name and "unknown" not in name)
    return (topology.platform, *known) if known else ()


def several_machines(headers: Iterable[Header]) -> bool:
    """Return whether some of the runs are known to be of different machines or systems."""
    return len({machine_key(header) for header in headers} - {()}) > 1


def _at(header: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        header = header.get(name, _ABSENT) if isinstance(header, Mapping) else _ABSENT
    return header


def _records(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, Mapping) for part in value)


def _between(name: str, base: Any, new: Any) -> Iterator[Difference]:
    if all(isinstance(value, Mapping) or value is _ABSENT for value in (base, new)):
        keys = chain.from_iterable(value for value in (base, new) if value is not _ABSENT)
        for key in dict.fromkeys(keys):
            if key not in _FLEETING:
                yield from _between(f"{name}.{key}", _at(base, (key,)), _at(new, (key,)))
    # Lists of records, like caches, are compared record by record.
    elif _records(base) and _records(new) and len(base) == len(new):
        for number, pair in enumerate(zip(base, new, strict=True)):
            yield from _between(f"{name}.{number}", *pair)
    elif base is not new and base != new:
        yield Difference(printable(name), _text(base), _text(new))


def _text(value: Any) -> str:
    if value is _ABSENT:
        return "-"
    text = printable(value if isinstance(value, str) else json.dumps(value, default=str))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
