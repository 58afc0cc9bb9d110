"""`--json FILE|-`: where the JSON of a command goes, the same in all that have some.

`-` is standard output, and so is a `--json` that stands alone, as it could before it took a file.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, TypeVar

import click

from collbench.cli._paths import PATH
from collbench.errors import StorageError, writing

STANDARD = Path("-")  # standard output
OPTION = "--json"
_SUFFIX = ".json"
_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


class JsonCommand(click.Command):
    """One whose `--json` may stand alone, also before a run or a folder."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """The word behind it is its file if it is `-` or ends in .json; `--json=FILE` takes any."""
        words, rest = [], list(args)
        while rest:
            word = rest.pop(0)
            if word == "--":
                words += [word, *rest]
                break
            if word == OPTION:
                taken = rest and (rest[0] == str(STANDARD) or rest[0].endswith(_SUFFIX))
                word = f"{OPTION}={rest.pop(0) if taken else STANDARD}"
            words.append(word)
        return super().parse_args(context, words)


def json_option(what: str) -> Callable[[_Decorated], _Decorated]:
    """The option, of which `what` says what the JSON is of."""
    return click.option(
        OPTION, "as_json", type=PATH, metavar="FILE|-", help=f"Write {what} as JSON; - is standard output, and no more."
    )


@contextmanager
def into(place: Path) -> Iterator[None]:
    """What is printed inside goes into that file, or where it went anyway."""
    if place == STANDARD:
        yield
        return
    with redirect_stdout(io.StringIO()) as held:
        yield
    with writing(place, f"{OPTION} FILE", StorageError):
        place.write_text(held.getvalue(), encoding="utf-8")
