"""What a text of the lesson says of numbers: its sentences, each chosen by a number, and questions with their answers.

A text is a sentence, or a list of sentences.  A sentence is a string, or a table whose `says` are the sentences to
choose from: by the first bound of `up_to` that the `number` does not exceed, or by the right choice of the question.

Numbers are those of the reader's runs.  Where these lack one, or had it disturbed, the sentence takes its numbers from
the committed run, and says so.  A sentence whose numbers nobody knows is left out.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from collbench.lesson import elsewhere
from collbench.lesson.content import HERE, Question
from collbench.lesson.numbers import Numbers, filled, fitted, titles
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
            return elsewhere.published()[rest].value
        if kind == "m":
            place, _, rest = rest.partition(":")
            return elsewhere.numbers(place).value(rest)
        return self._known[title] if title in self._known else self.numbers.value(title)

    @property
    def _known(self) -> Mapping[str, str]:
        """What titles stand for that are no numbers."""
        return {**self.facts, **self.numbers.names}

    def text(self, text: str) -> str:
        """Return a text with its numbers; KeyError if one is not known."""
        return filled(text.strip(), self.value)

    def sentence(self, sentence: str | Mapping[str, Any], answer: int) -> str:
        """Return a sentence for what these numbers, or the question's answer, are; KeyError if they lack one."""
        if isinstance(sentence, str):
            chosen, decisive = sentence, []
        else:
            decisive = [sentence["number"]] if "number" in sentence else []
            index = bisect_left(sentence["up_to"], self.numbers.figure(decisive[0])) if decisive else answer
            chosen = sentence["says"][index]
        said, own = self.text(chosen), [title for title in (*titles(chosen), *decisive) if self._is_own(title)]
        marked = self.marked and own and said and not {"here", "Here"} & set(titles(chosen))
        return f"{said} ({self.source[0].upper()}{self.source[1:]}.)" if marked else said

    def _is_own(self, title: str) -> bool:
        """Return whether a number is this machine's, and none that another place or a publication has."""
        return not title.startswith(("p:", "m:")) and title not in self._known


@dataclass(frozen=True)
class Teller:
    """Tells texts: with the reader's numbers, where they are known, else with those of the committed run."""

    voices: tuple[Voice, ...]

    @classmethod
    def of(cls, here: Voice) -> "Teller":
        """Return the teller of a machine."""
        place = elsewhere.places()[elsewhere.COMMITTED]
        facts = {"here": f"on {place.name}", "Here": f"On {place.name}", "ranks": str(place.ranks)}
        committed = Voice(elsewhere.numbers(elsewhere.COMMITTED), {**here.facts, **facts}, place.source, marked=True)
        return cls((here, committed))

    def text(self, text: Text, answer: int = 0) -> str:
        """Return a text: each sentence by the first voice that knows its numbers, without those that none knows."""
        return " ".join(filter(None, self._sentences(text, answer)))

    def _sentences(self, text: Text, answer: int) -> Iterator[str]:
        for sentence in [text] if isinstance(text, str) else text:
            for voice in self.voices:
                with suppress(KeyError):
                    yield voice.sentence(sentence, answer)
                    break

    def number(self, number: str, says: Text) -> tuple[str, str, str]:
        """Return a number, what it is, and whose: of the first machine that knows it; KeyError if none does."""
        for voice in self.voices:
            with suppress(KeyError):
                return voice.text(number), Teller((replace(voice, marked=False),)).text(says), voice.source
        raise KeyError(number)

    def question(self, name: str, text: Mapping[str, Any]) -> tuple[Question, "Teller"]:
        """Return a question with its answer, and the teller of what stands beside it; KeyError if no run answers it.

        What stands beside an answer of the committed run has the numbers of that run.
        """
        for number, voice in enumerate(self.voices):
            with suppress(KeyError):
                choices, index, source, names = _answer(text["answer"], text["choices"], voice)
                named = [replace(each, numbers=replace(each.numbers, names=names)) for each in self.voices[number:]]
                own = replace(named[0], marked=False)
                beside = Teller((own, *named[1:]))
                ask, because = Teller((own,)).text(text["ask"]), beside.text(text["because"], index)
                return Question(name, ask, choices, index, because, source, text.get("command", "")), beside
        raise KeyError(name)


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
