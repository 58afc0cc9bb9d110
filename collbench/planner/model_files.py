"""Models by a user's words: a preset's name, a TOML file, or dimensions in a line, `layers=32,hidden=4096,heads=32`."""

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from collbench.errors import UsageError, unknown
from collbench.host.sanitize import read_toml
from collbench.host.sanitize import text as cleaned
from collbench.planner.models import Model, of_size
from collbench.planner.presets import ALIASES, MODELS

KEYS: Mapping[str, type] = {
    **{field.name: int for field in fields(Model)},
    "name": str,
    "gated": bool,
    "tied": bool,
    "parameters": float,
}
"""Of a file, with their types; `parameters` is checked against the dimensions, or stands for all of them."""
_INSIDE = ("stated", "trained")  # fields that no file sets
_SUFFIXES = {"": 1.0, "M": 1e6, "B": 1e9, "T": 1e12}


def load_model(text: str) -> Model:
    """The model that is meant; UsageError, with the choices, for what is none."""
    if text.endswith(".toml"):
        return described(read_toml(Path(text), UsageError), text)
    if "=" in text:
        return described(_words(text), text)
    name = ALIASES.get(text.lower(), text.lower())
    if name not in MODELS:
        raise unknown("--model", text, (*MODELS, "FILE.toml", "layers=32,hidden=4096,heads=32"))
    return MODELS[name]


def described(said: Mapping[str, Any], where: str) -> Model:
    """The model of a file's keys."""
    said = said["model"] if set(said) == {"model"} and isinstance(said["model"], dict) else said
    values = {name: _checked(name, value, where) for name, value in said.items()}
    name = cleaned(str(values.pop("name", Path(where).stem if where.endswith(".toml") else "model")), 60)
    stated = values.pop("parameters", 0.0)
    if stated and not {"layers", "hidden", "heads"} & set(values):
        return of_size(name, stated, **values)
    for needed in ("layers", "hidden", "heads"):
        if needed not in values:
            raise UsageError(f"{where}: {needed} is missing; give layers, hidden and heads, or parameters alone")
    return Model(name=name, stated=stated, **values).checked()


def _checked(name: str, value: Any, where: str) -> Any:
    if name not in KEYS or name in _INSIDE:
        raise unknown(f"key in {where}", name, (key for key in KEYS if key not in _INSIDE))
    wanted = KEYS[name]
    if name == "parameters":
        return parse_count(value, f"{where}: parameters")
    if wanted is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not wanted:
        words = {int: "a whole number", bool: "true or false", str: "a text"}[wanted]
        raise UsageError(f"{where}: {name} = {cleaned(repr(value), 40)} is impossible; it must be {words}")
    return value


def parse_count(value: Any, where: str) -> float:
    """A number of things, also as `13B` or `1.5T`; UsageError if it is none."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]{1,2})?)([MBT]?)", str(value).upper().replace("E", "e"))
    if not match or isinstance(value, bool):
        raise UsageError(f"{where} = {cleaned(repr(value), 40)} is no number; write one such as 7e9, 13B or 1.5T")
    return float(match[1]) * _SUFFIXES[match[2]]


def _words(text: str) -> dict[str, Any]:
    """`layers=32,gated=true` as a file would have it."""
    said: dict[str, Any] = {}
    for word in text.split(","):
        name, _, value = word.strip().partition("=")
        said[name] = {"true": True, "false": False}.get(
            value, int(value) if re.fullmatch(r"\d{1,18}", value) else value
        )
    return said
