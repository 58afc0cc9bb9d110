"""Holds the sentences of a written lesson against the rows beside it: what each claims, and with whose numbers."""

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from collbench.commands.lesson import numbers, table
from collbench.commands.lesson.numbers import Numbers, filled, judged
from collbench.platforms.cost import COSTS
from collbench.results import Result
from tests.conftest import ROOT
from tools import ONE_H100, lesson

Figure = Callable[[str], float]
"""The number of a title, of the machine that a sentence is about."""
COMMITTED = "two cores of an Intel Xeon"
EVEN = (0.9, 1.11)


def between(title: str, low: float, high: float) -> Callable[[Figure], bool]:
    return lambda figure: low <= figure(title) <= high


def even(title: str) -> Callable[[Figure], bool]:
    return between(title, *EVEN)


def over(title: str, bound: float = 1.0) -> Callable[[Figure], bool]:
    return lambda figure: figure(title) > bound


def under(title: str, bound: float = 1.0) -> Callable[[Figure], bool]:
    return lambda figure: figure(title) < bound


HOST, FUSED = "ring-host / ring-flags at {}", "one-shot-ll / two-shot at 32 KiB over 8 B"
CLAIMS: dict[tuple[str, str], Callable[[Figure], bool]] = {
    ("here", "an easy win"): over("library / best at 8 B"),
    ("ring-host", "other way round"): under(HOST.format("2 MiB")),
    ("ring-host", "the two are about equal"): even(HOST.format("2 MiB")),
    ("ring-host", "as long."): over(HOST.format("2 MiB")),
    ("ring-host", "do not show at 8 B"): under(HOST.format("8 B"), 1.2),
    ("ring-host", "lose where steps are short"): over(HOST.format("8 B")),
    ("ring-flags", "are the cost of a small message"): under("moved+added of ring-flags at 2 KiB", 0.26),
    ("ring-flags", "are much of the cost"): under("moved+added of ring-flags at 2 KiB", 0.61),
    ("ring-flags", "most of the time goes to the data"): over("moved+added of ring-flags at 2 KiB", 0.5),
    ("ring-pipelined", "cost more than they gain"): under("ring-flags / ring-pipelined at 2 MiB"),
    ("ring-pipelined", "next to nothing"): even("ring-flags / ring-pipelined at 2 MiB"),
    ("ring-pipelined", "helps to move fewer bytes"): over("ring-flags / ring-pipelined at 2 MiB"),
    ("ring-ll", "the small message is faster"): under("ring-ll / ring-flags at 8 B"),
    ("ring-ll", "little to save"): over("ring-ll / ring-flags at 8 B", 0.9),
    ("one-shot", "does not win at 8 B"): under("ring-flags / one-shot at 8 B"),
    ("one-shot", "the two are about equal"): even("ring-flags / one-shot at 8 B"),
    ("one-shot-ll", "keeps up with"): under(FUSED, 1.2),
    ("one-shot-ll", "can be bad for another"): over(FUSED),
    ("two-shot", "that does not show"): under("ring-flags / two-shot at 2 MiB", 1.2),
    ("two-shot", "; `two-shot` does not"): over("ring-flags / two-shot at 2 MiB"),
    ("parameter-server", "nobody else does"): over("waited of parameter-server at 512 KiB", 0.3),
    ("why-host", "does not show there"): under(HOST.format("8 B"), 1.2),
    ("why-one-algorithm", "does not show there"): under(FUSED, 1.2),
    ("when-small", "no win there"): under("library / one-shot-ll at 8 B", 1.2),
    ("when-known-memory", "no win there"): under("library / two-shot at 2 MiB", 1.2),
}
"""What must be true where a sentence with these words stands, by where on the page."""
QUIET: dict[tuple[str, str], Callable[[Figure], bool]] = {
    ("why-host", "as long as the same ring"): over(HOST.format("8 B")),
    ("when-small", "as fast as the library"): over("library / one-shot-ll at 8 B"),
    ("when-known-memory", "as fast as the library"): over("library / two-shot at 2 MiB"),
}
"""What must be true where such a sentence stands and takes nothing back."""
TAKEN_BACK = ("does not show there", "no win there")


class Machine:
    """The rows of a machine that may be used: right and undisturbed."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    @classmethod
    def of(cls, results: Sequence[Result]) -> "Machine":
        return cls(
            Numbers.of(row for row in judged(results) if not (row.scheduling and row.scheduling.off_core > 0.25))
        )


def text_of(markup: str) -> str:
    """The words of some HTML, with code in back-ticks and a point between paragraphs."""
    code = re.sub(r"</?code[^>]*>", "`", re.sub(r"</(p|h3|h4|summary)>", " · ", markup))
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", code))).strip()


def parts(page: str) -> Iterator[tuple[str, str, str]]:
    """Questions, cards and the text on what was measured here: name, HTML and text of each."""
    for name, body in re.findall(r'id="q-([\w-]+)">(.*?)(?=<div class="question"|</section>)', page, re.DOTALL):
        yield name, body, text_of(body)
    for name, body in re.findall(r'<article id="((?:why|when)-[\w-]+)">(.*?)</article>', page, re.DOTALL):
        yield name, body, text_of(body)
    here = page[page.index('id="answer-title"') : page.index("<em>Published</em> for GPUs")]
    yield "here", here, text_of(here)


def wrong(page: str, results: Sequence[Result]) -> list[str]:
    here, committed = Machine.of(results), Machine(numbers.numbers_at(numbers.COMMITTED))
    found = list(_wrong_answers(page, here, committed))
    for name, _, words in parts(page):
        for claims, meant in ((CLAIMS, True), (QUIET, not any(said in words for said in TAKEN_BACK))):
            for (where, said), holds in claims.items():
                if where != name or not meant or said not in words:
                    continue
                machine = committed if _of_committed(words, said) else here
                try:
                    if not holds(machine.numbers.figure):
                        found.append(f"{name}: {said!r} is not so")
                except KeyError as missing:
                    found.append(f"{name}: {said!r} has no undisturbed row: {missing}")
    return found


def _of_committed(words: str, said: str) -> bool:
    """Whether a sentence is of the committed run: its question is, or it says so, or what stands behind it."""
    ask = words.partition("The answer")[0] if "The answer" in words else ""
    before, _, behind = words.partition(said)
    sentence = re.split(r"(?:[.?:·]|(?<!\d)\)) ", before)[-1] + said + behind.partition(". ")[0]
    after = re.split(r"(?<=\.) ", said + behind, maxsplit=1)[1:]
    return COMMITTED in ask or COMMITTED in sentence or "".join(after).startswith(f"(Measured on {COMMITTED},")


def _wrong_answers(page: str, here: Machine, committed: Machine) -> Iterator[str]:
    texts: list[Any] = [*table("lesson")["question"], *table("lesson")["screen"]]
    for text in texts:
        answer, name = text["answer"], text["name"]
        if isinstance(answer, int) or "above" in answer:
            continue
        body = next(body for found, body, _ in parts(page) if found == name)
        index = int(re.findall(rf'data-answer="(\d+)" id="q-{name}"', page)[0])
        choices = [text_of(choice) for choice in re.findall(r"<li>(.*?)</li>", body[: body.index("</ol>")], re.DOTALL)]
        ask = text_of(body[: body.index("</ol>")])
        said = text_of(re.findall(r"<strong>(.*?)</strong>", body[body.index("</ol>") :])[0])
        measured = (committed if COMMITTED in ask else here).numbers
        measured = numbers.numbers_at(answer["place"]) if "place" in answer else measured
        try:
            if "fastest" in answer:
                times = [measured.seconds(choice, parse(answer["fastest"])) for choice in choices]
                if times[index] != min(times):
                    yield f"{name}: {choices[index]} is not the fastest"
            else:
                value, words = measured.figure(answer["nearest"]), measured.value(answer["nearest"])
                if not near(value, choices[index]):
                    yield f"{name}: {choices[index]} is not near {value}"
                same = words.replace(".0x", "x") == choices[index]
                if said != (f"{words}." if same else f"{words}; the nearest choice is {choices[index]}."):
                    yield f"{name}: {said!r} does not say {words}"
        except KeyError as missing:
            yield f"{name}: the answer has no undisturbed row: {missing}"


def near(value: float, choice: str) -> bool:
    number = float(choice.strip("`x%"))
    return abs(value - number / 100) <= 0.101 if choice.endswith("%") else 1 / 2.01 <= value / number <= 2.01


def parse(size: str) -> int:
    number, unit = size.split()
    return int(number) * {"B": 1, "KiB": 2**10, "MiB": 2**20}[unit]


# ---- one H100 that ranks share ----

TODAY, FIRST = ROOT / "results" / ONE_H100, ROOT / numbers.places()[numbers.EARLIER].run
KIB, MIB, DIRECT = 2**10, 2**20, ("one-shot", "one-shot-ll", "two-shot", "parameter-server")
WINS = (
    ("Waits outside of a kernel lose, except for events", "ring-host", 0, 0),
    ("except for events at 2 and 8 MiB", "ring-events", 2 * MIB, 8 * MIB),
    ("`ring-flags` loses up to 512 KiB and wins from 2 MiB on", "ring-flags", 2 * MIB, 128 * MIB),
    ("`ring-flags` loses up to 512 KiB and `ring-pipelined`", "ring-flags", 2 * MIB, 128 * MIB),
    ("`ring-pipelined` up to 32 KiB; both win from 2 MiB on", "ring-pipelined", 128 * KIB, 128 * MIB),
    ("Packets win up to 8 MiB ([", "ring-ll", 8, 8 * MIB),
    ("Packets win up to 8 MiB, since", "ring-ll", 8, 8 * MIB),
    *(("irect kernels win at every size", name, 8, 128 * MIB) for name in DIRECT),
)
"""Words of pages, and the sizes from first to last at which a kernel must then be faster than NCCL, and at no other."""
SAID = (
    "NCCL goes from {library at 512 KiB} at 512 KiB to {library at 2 MiB} at 2 MiB",
    "{nccl / best at 8 B} as fast as NCCL at 8 B, {nccl / best at 2 MiB} at 2 MiB and {nccl / best at 128 MiB}",
    "Up to 512 KiB `nccl` takes {longer:min} to {longer:max} % longer",
    "({first:library at 8 B} for 8 B, not {library at 8 B})",
    "some {host:.0f} us through the host and {event:.1f} us through events; a wait for a flag takes {flag:.1f} us",
    "A wait for a packet takes {packet:.2f} us",
)
"""Words with numbers that are no links: of the newest run, of the first, or a fitted cost with its format."""


def figure_of_one_h100(title: str) -> str:
    kind, _, how = title.partition(":")
    if kind == "longer":
        old, new = (lesson.numbers(run).curves()["nccl"] for run in (FIRST, TODAY))
        return f"{100 * {'min': min, 'max': max}[how](old[size] / new[size] - 1 for size in new if size < MIB):.0f}"
    if kind in COSTS["shared"]["sm90"]:
        return format(COSTS["shared"]["sm90"][kind] * 1e6, how)
    return lesson.numbers(FIRST if how else TODAY).value(how or title)


def wrong_of_one_h100(texts: Mapping[str, str]) -> Iterator[str]:
    """Yield what pages say that the newest run does not: numbers in links and tables, and words."""
    everything = re.sub(r"\s+", " ", " ".join(texts.values()).replace("**", ""))
    for said, run, title in lesson.NUMBER.findall(everything):
        other = "h100" in run and ROOT / run[3:] not in (TODAY, FIRST)
        if other or lesson.numbers(ROOT / run[3:]).value(title) != said:
            yield f"{title} is not {said}"
    lines = (*lesson.one_h100(), *lesson.on_a_gpu(), *(words for words, *_ in WINS))
    for line in (*lines, *(filled(said, figure_of_one_h100) for said in SAID)):
        if " ".join(line.split()) not in everything:
            yield f"no page says: {line}"
    times = lesson.numbers(TODAY).curves()
    for words, name, first, last in WINS:
        faster = {size for size, seconds in times[name].items() if seconds < times["nccl"][size]}
        if faster != {size for size in times[name] if first <= size <= last}:
            yield f"not so: {words}"
