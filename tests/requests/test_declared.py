"""A word is declared once: its sentence, its limits and its choices are the same for a command and for the library."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, is_dataclass
from importlib import import_module
from typing import Annotated

import click
import pytest

import collbench
from collbench.cli.group import group
from collbench.cli.options import made, options_of
from collbench.errors import UsageError
from collbench.requests import functions, sweeps
from collbench.requests.declared import SIZE, TIME, Opt, Request, Word, declared, takes

MODULES = [sweeps, *map(import_module, {*functions().values()})]


@dataclass(frozen=True)
class MadeUp(Request):
    """Words of all sorts."""

    name: Annotated[str, Opt("", "What it is called.")]
    _: KW_ONLY
    ranks: Annotated[int | None, Opt("-g --ranks", "Number of ranks.", "all", least=1, most=9)] = None
    rate: Annotated[float, Opt("--rate", "How fast.", above=0)] = 1.5
    wait: Annotated[float | str, Opt("--wait", "How long.", unit=TIME, most=60)] = "5s"
    size: Annotated[int | str, Opt("--size", "How large.", unit=SIZE, least=1)] = 8
    mode: Annotated[str, Opt("--mode", "In which way.", choices=("slow", "fast"))] = "slow"
    each: Annotated[Callable[[int], object] | None, Opt("", "Called with every number.")] = None


@takes(MadeUp)
def used(request: MadeUp) -> MadeUp:
    """Use a request.

    Returns:
        The request.

    """
    return request


def requests() -> Iterator[type[Request]]:
    for module in MODULES:
        for kind in vars(module).values():
            if is_dataclass(kind) and isinstance(kind, type) and issubclass(kind, Request) and kind is not Request:
                yield kind


def words() -> Iterator[Word]:
    for request in requests():
        yield from declared(request).values()


def parsed(*arguments: str) -> dict[str, object]:
    command = click.Command("made-up", params=options_of(MadeUp))
    return command.make_context("made-up", [*arguments]).params


def test_a_function_has_the_parameters_and_the_sentences_of_its_request() -> None:
    assert list(inspect.signature(used).parameters) == list(declared(MadeUp))
    assert used("a", ranks=2).ranks == 2
    for sentence in (
        "A time is in seconds",
        "name: What it is called.",
        "ranks: Number of ranks; by default all.",
        'mode: In which way. One of "slow", "fast".',
        "each: Called with every number.",
        "Returns:",
    ):
        assert sentence in str(used.__doc__)


def test_a_command_takes_a_time_as_seconds_and_a_size_as_it_is_written() -> None:
    taken = parsed("-g", "2", "--wait", "500ms", "--size", "64K")
    assert (taken["ranks"], taken["wait"], taken["size"], taken["mode"]) == (2, 0.5, "64K", "slow")
    assert made(MadeUp, taken, name="a").ranks == 2
    assert "each" not in taken


@pytest.mark.parametrize(
    ("word", "value", "told"),
    [
        ("ranks", "0", "--ranks 0 is impossible; give at least 1 and at most 9"),
        ("ranks", "10", "--ranks 10 is impossible; give at least 1 and at most 9"),
        ("rate", "0", "--rate 0 is impossible; give more than 0"),
        ("rate", "nan", "--rate nan is impossible; give more than 0"),
        ("wait", "2min", "--wait 2min is impossible; give at most 60"),
        ("wait", "soon", "--wait 'soon' is no duration"),
        ("size", "0", "--size 0 is impossible; give at least 1"),
        ("mode", "fastest", "unknown --mode 'fastest'; did you mean fast? choose from: slow, fast"),
    ],
)
def test_what_is_impossible_is_refused_in_one_form_by_command_and_library(word: str, value: str, told: str) -> None:
    number = {"ranks": int, "rate": float}.get(word, str)
    for refusing in (lambda: parsed(f"--{word}", value), lambda: MadeUp("a", **{word: number(value)})):
        with pytest.raises(UsageError) as said:
            refusing()
        assert told in str(said.value)


def test_every_word_has_a_whole_sentence_and_every_function_its_words() -> None:
    assert len([*words()]) > 60
    for word in words():
        assert word.opt.sentence.endswith("."), word
        assert word.opt.sentence[0].isupper() or word.opt.help.split()[0] in ("adam,", "png,"), word
    for name in collbench.__all__:
        function = getattr(collbench, name)
        for parameter in inspect.signature(function).parameters:
            assert f"    {parameter}: " in str(function.__doc__), (name, parameter)


def test_help_says_what_the_library_says() -> None:
    for name, request in {"sweep": "SweepRequest", "train": "TrainRequest", "plot": "DrawRequest"}.items():
        command = group.get_command(click.Context(group), name)
        assert command
        helps = {option.name: str(getattr(option, "help", "")) for option in command.params}
        (kind,) = {kind for kind in requests() if kind.__name__ == request}
        for word in declared(kind).values():
            if word.opt.names and word.name in helps:
                assert helps[word.name].startswith(word.opt.help), (name, word.name)
