"""Records that msgspec writes and reads as they are declared: results, headers, topologies and systems.

Fields at their defaults are not written.
"""

import json
from collections.abc import Callable
from dataclasses import Field, fields, make_dataclass
from functools import cache
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from collbench.errors import UsageError

T = TypeVar("T")
Named = TypeVar("Named")

_REGISTRIES: dict[type, Callable[[str], Any]] = {}


@cache
def _fields(record: type[msgspec.Struct]) -> dict[str, Field[Any]]:
    return {field.name: field for field in fields(make_dataclass(record.__name__, record.__struct_fields__))}


class _DataclassFields:
    """The fields of a struct as dataclasses have them, so that `replace`, `fields` and `asdict` take it."""

    def __get__(self, record: object, kind: type[msgspec.Struct]) -> dict[str, Field[Any]]:
        return _fields(kind)


def written_by_name(find: Callable[[str], Named]) -> Callable[[type[Named]], type[Named]]:
    """Have files, messages and pickles hold only the name of an object of a dataclass, which `find` returns by it."""

    def register(kind: type[Named]) -> type[Named]:
        _REGISTRIES[kind] = find
        kind.__reduce__ = lambda self: (_by_name, (kind, self.name))  # type: ignore[method-assign, attr-defined]
        del kind.__dataclass_fields__  # type: ignore[attr-defined]  # else msgspec would write the fields
        return kind

    return register


def _by_name(kind: type, name: object) -> Any:
    if not isinstance(name, str):
        raise ValueError(f"expected a name, got {type(name).__name__}")
    try:
        return _REGISTRIES[kind](name)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _name(value: Any) -> str:
    return str(value.name)


def plain(record: object) -> Any:
    """Return a record, or whatever holds records, as the dictionaries and lists that JSON has."""
    return json.loads(encoded(record))


def encoded(record: object) -> bytes:
    """Return a record, or whatever holds records, as a line of JSON."""
    try:
        return msgspec.json.encode(record, enc_hook=_name) + b"\n"
    except UnicodeEncodeError:
        # A path, say, whose bytes are not UTF-8.
        return json.dumps(msgspec.to_builtins(record, enc_hook=_name)).encode() + b"\n"


def convert(value: Any, kind: type[T]) -> T:
    """Return a JSON value as that type; ValueError in one line, with the name of the field, where it is none."""
    try:
        return msgspec.convert(value, kind, dec_hook=_by_name)
    except msgspec.ValidationError as error:
        message, _, path = str(error).replace("`", "").partition(" - at $")
        where = f"field {path.removeprefix('.')!r}: " if path else ""
        raise ValueError(f"{where}{message[0].lower()}{message[1:]}") from None


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A struct that `replace`, `fields` and `asdict` of dataclasses take as they take dataclasses."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]] = _DataclassFields()  # type: ignore[assignment]

    @classmethod
    def from_json(cls, fields: Any) -> Self:
        """Return the record that a JSON object stands for; ValueError where it is none."""
        return convert(fields, cls)

    def to_json(self) -> dict[str, Any]:
        """Return the record as a JSON object."""
        fields: dict[str, Any] = plain(self)
        return fields
