"""The header of a run file: what holds for the whole run, typed, and parsed once.

A run file may come from anywhere, so no value is believed to be of its type.  One of another type counts as empty, and
stays in `rest` with the fields that nobody here knows: a report can show it, and writing loses nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self, get_args, get_origin, get_type_hints

from collbench.notebook import Shown


@dataclass(frozen=True, kw_only=True)
class Part(Shown):
    """A part of a header.  `rest` has, by name, what the typed fields would not write as it was read."""

    rest: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, record: object) -> Self:
        """Return the part that a JSON value stands for; never an error."""
        values = record if isinstance(record, dict) else {}
        part: Any = cls
        typed = {name: _typed(as_type, values[name]) for name, as_type in _types(part) if name in values}
        written = cls(**typed).to_json()
        lost = {name: value for name, value in values.items() if name not in written or written[name] != value}
        return cls(**typed, rest=lost)

    def to_json(self) -> dict[str, Any]:
        """Return the part for a run file, without what is as it is by default."""
        part: Any = type(self)
        default = part()
        written = {}
        for name, _ in _types(part):
            value = getattr(self, name)
            if value != getattr(default, name):
                written[name] = _json(value)
        return written | dict(self.rest)


@dataclass(frozen=True, kw_only=True)
class Environment(Part):
    """Where a run was measured, with which versions, and with which variables that change the numbers."""

    host: str = ""
    system: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Device(Part):
    """What ranks live on: a GPU or a socket."""

    name: str = ""
    host: str = ""
    bus_id: str = ""  # of a GPU, as CUDA writes it: 0000:0a:00.0


@dataclass(frozen=True, kw_only=True)
class TopologyPart(Part):
    """What connects the ranks: the part that is read without collbench.topology, which reads all of it."""

    name: str = ""
    platform: str = ""  # what the ranks live on
    ranks: int = 0
    nodes: int = 0  # 0: not known, as where the list of a foreign log is trimmed to so many of its ranks
    listed: int = 0
    uneven: tuple[int, ...] = ()  # ranks of each host of a foreign log, where they differ
    racks: int = 0  # as NVLinks join hosts, by a foreign log; 0: not known
    shared: bool = False  # whether ranks share a GPU
    unseen: str = ""  # why nothing is known of what joins the ranks' devices
    gpus: tuple[Device, ...] = ()
    sockets: tuple[Device, ...] = ()
    places: tuple[int, ...] = ()  # the device of each rank; without any, ranks are dealt to all devices in turn
    model: bool = False  # whether the run is predicted
    system: Mapping[str, Any] = field(default_factory=dict)  # for which it is


@dataclass(frozen=True, kw_only=True)
class SweepPart(Part):
    """The sweep that was requested; of an imported run, what is known of it."""

    collectives: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    implementations: tuple[str, ...] = ()
    ranks: int = 0
    spin: str = ""
    bind: str = ""
    starts: int = 1  # how often the ranks were started
    sampling: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)  # of which range the sizes were made


@dataclass(frozen=True, kw_only=True)
class ForeignTest(Part):
    """A test that another tool carried out, and what an export needs to write it as it was."""

    format: str = ""
    tool: str = ""
    version: str = ""
    file: str = ""  # `gpu05.log`, of several `gpu05.log and 2 more`
    complete: bool = True  # whether its end was there
    sweep: Mapping[str, Any] = field(default_factory=dict)  # iterations and the like
    layout: Mapping[str, Any] = field(default_factory=dict)  # of the format's own


@dataclass(frozen=True, kw_only=True)
class ImportedPart(Part):
    """Who printed the numbers of an imported run."""

    tool: str = ""
    version: str = ""
    file: str = ""  # `gpu05.log`, of several `gpu05.log and 2 more`
    complete: bool = True  # whether the end of every test was there
    left_out: tuple[str, ...] = ()
    tests: tuple[ForeignTest, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Interleaved(Part):
    """Which arm this run is of two settings that were measured in turn."""

    id: str = ""  # the same for both arms
    setting: str = ""  # empty for the environment as it is
    cores: tuple[int, ...] = ()  # of each rank


@dataclass(frozen=True, kw_only=True)
class Header(Part):
    """What holds for the whole run."""

    collbench: str = ""  # the version that wrote it
    command: tuple[str, ...] = ()
    started: str = ""  # ISO 8601
    resumed: tuple[str, ...] = ()  # when what was missing was measured, likewise
    processes: int = 0  # that an outside launcher started, each a rank; 0: the command started the ranks
    environment: Environment = Environment()
    topology: TopologyPart = TopologyPart()
    sweep: SweepPart = SweepPart()
    imported: ImportedPart = ImportedPart()
    interleaved: Interleaved = Interleaved()


def _typed(as_type: Any, value: Any) -> Any:
    """Return as much of a JSON value as is of that type; an empty value of the type if nothing is."""
    if get_origin(as_type) is tuple:
        element = get_args(as_type)[0]
        return tuple(_typed(element, part) for part in value) if isinstance(value, list) else ()
    if get_origin(as_type) is Mapping:
        values = value if isinstance(value, dict) else {}
        if get_args(as_type)[1] is not str:
            return values
        return {name: str(part) for name, part in values.items() if isinstance(part, str | int | float)}
    if issubclass(as_type, Part):
        return as_type.from_json(value)
    return value if type(value) is as_type else as_type()  # so True is no number


@cache
def _types(part: Any) -> tuple[tuple[str, Any], ...]:
    """Return name and type of a part's fields, without `rest`: a field of that name is an unknown field."""
    return tuple((name, as_type) for name, as_type in get_type_hints(part).items() if name != "rest")


def _json(value: Any) -> Any:
    if isinstance(value, Part):
        return value.to_json()
    return [_json(element) for element in value] if isinstance(value, tuple) else value
