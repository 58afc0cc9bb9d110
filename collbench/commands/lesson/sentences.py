"""What a text of the lesson says of numbers: its sentences, each chosen by a number, and questions with their answers.

A text is a sentence, or a list of sentences.  A sentence is a string, or a table whose `says` are the sentences to
choose from: by the first bound of `up_to` that the `number` does not exceed, or by the right choice of the question.

Numbers are those of the reader's runs.  Where these lack one, or had it disturbed, the sentence takes its numbers from
the committed run, and says so.  A sentence whose numbers nobody knows is left out.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from collbench.commands.lesson import elsewhere
from collbench.commands.lesson.content import HERE, Part
from collbench.commands.lesson.numbers import Numbers, filled, fitted, titles
from collbench.units import parse_size

COUNTED = "counted"
"""Where an answer comes from that no run decides: the algorithm."""
Text = str | Sequence[str | Mapping[str, Any]]


@dataclass(frozen=True)
class Voice:
    """Says sentences with the numbers of one machine."""

    numbers: Numbers
    facts: Mapping[str, str]  # `here`, `Here`, machine and ranks
    source: str = HERE
    marked: bool = False  # whether a sentence with its numbers must say whose they are

    def value(self, title: str) -> str:
        """Return what stands for a title in braces; KeyError if nothing is known of it."""
        kind, _, rest = title.partition(":")
        if kind == "p":
            return elsewhere.published()[rest]["value"]
        if kind == "m":
            place, _, rest = rest.partition(":")
            return elsewhere.numbers(place).value(rest)
        return {**self.facts, **self.numbers.names}.get(title) or self.numbers.value(title)

    def sentence(self, sentence: str | Mapping[str, Any], answer: int = 0) -> str:
        """Return a sentence for what these numbers, or the question's answer, are; KeyError if they lack one."""
        decisive: list[str] = []
        if not isinstance(sentence, str):
            decisive = [sentence["number"]] if "number" in sentence else []
            index = bisect_left(sentence["up_to"], self.numbers.figure(decisive[0])) if decisive else answer
            sentence = str(sentence["says"][index])
        said = filled(sentence.strip(), self.value)
        own = [title for title in (*titles(sentence), *decisive) if not title.startswith(("p:", "m:"))]
        marked = self.marked and said and {*own} - {*self.facts} and not {*own} & {"here", "Here"}
        return f"{said} ({self.source[0].upper()}{self.source[1:]}.)" if marked else said


Voices = Sequence[Voice]
"""Those who may say a sentence, the reader's machine first."""


def voices_of(here: Voice) -> Voices:
    """Return the voice of the reader's machine, and that of the committed run for what it does not know."""
    place = elsewhere.places()[elsewhere.COMMITTED]
    facts = {"here": f"on {place.name}", "Here": f"On {place.name}", "ranks": str(place.ranks)}
    return here, Voice(elsewhere.numbers(elsewhere.COMMITTED), {**here.facts, **facts}, place.source, marked=True)


def rendered(voices: Voices, text: Text, answer: int = 0) -> str:
    """Return a text: each sentence by the first voice that knows its numbers, without those that none knows."""
    # The reader's machine says what it can; what it does not know, the committed run says.
    sentences = []
    for sentence in [text] if isinstance(text, str) else text:
        for voice in voices:
            with suppress(KeyError):
                sentences.append(voice.sentence(sentence, answer))
                break
    return " ".join(filter(None, sentences))


def number(voices: Voices, text: Mapping[str, Any], says: str) -> tuple[str, str, str]:
    """Return the number of a text, what it is by the key *says*, and its source; KeyError if no voice knows it."""
    for voice in (replace(each, marked=False) for each in voices):
        with suppress(KeyError):
            return voice.sentence(text["number"]), rendered([voice], text[says]), voice.source
    raise KeyError(text["number"])


def question(voices: Voices, text: Part) -> tuple[Part, Voices]:
    """Return a question, and the voices for the text around it: of an answer of the committed run, that run's alone.

    KeyError if no run answers it.
    """
    for place, voice in enumerate(voices):
        with suppress(KeyError):
            choices, index, source, names = _answer(text["answer"], text["choices"], voice)
            own, *others = (replace(each, numbers=replace(each.numbers, names=names)) for each in voices[place:])
            answering = [replace(own, marked=False), *others]
            ask, because = rendered(answering[:1], text["ask"]), rendered(answering, text["because"], index)
            said = {"ask": ask, "choices": choices, "answer": index, "because": because, "source": source}
            return {"command": "", **text, **said}, answering
    raise KeyError(text["name"])


def _answer(answer: Any, choices: Sequence[str], voice: Voice) -> tuple[tuple[str, ...], int, str, Mapping[str, str]]:
    """Return the choices, the index of the right one, where that is known from, and names; KeyError if it is not known.

    Of the fastest choice, `right` and `second` name that and the next one.
    """
    if isinstance(answer, int):
        return tuple(choices), answer, COUNTED, {}
    place = answer.get("place")
    numbers = elsewhere.numbers(place) if place else voice.numbers
    source = elsewhere.places()[place].source if place else voice.source
    if "fastest" in answer:
        nbytes = parse_size(answer["fastest"])
        first, second = sorted(choices, key=lambda name: numbers.seconds(name, nbytes))[:2]
        return tuple(choices), choices.index(first), source, {"right": first, "second": second}
    if "above" in answer:
        return tuple(choices), int(numbers.figure(answer["ratio"]) > answer["above"]), source, {}
    return *fitted(numbers.figure(answer["nearest"]), choices), source, {}
