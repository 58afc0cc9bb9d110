"""The parts of the page about where the runs took place: the machine and its environment."""

from collections.abc import Iterator, Sequence

from collbench.report.machines import picture, text_of
from collbench.report.markup import Markup, joined, table, tag
from collbench.report.sanitize import plain
from collbench.report.seen import Seen, by_run, section

MOST_FACTS = 60  # versions or variables of a run
MOST_PICTURES = 4


def machines(found: Sequence[Seen]) -> Markup:
    """A picture of each machine, or what is known of it in words."""
    parts: list[str] = []
    shown: set[str] = set()
    for number, seen in enumerate(found):
        lines = "\n".join(text_of(seen.run, seen.system))
        key = f"{seen.system}{lines}{seen.why_not}"
        if key not in shown:
            shown.add(key)
            parts.append(_machine(seen, lines, f"m{number}-" if len(shown) <= MOST_PICTURES else ""))
    return section("machine", "The machine", *parts)


def _machine(seen: Seen, lines: str, prefix: str) -> Markup:
    name = tag("h3", seen.run.machine)
    drawn = picture(seen.system, prefix) if seen.system and prefix else ""
    label = f"Picture of {seen.run.machine}; the same in words follows"
    parts = [tag("div", Markup(drawn), class_="picture", role="img", aria_label=label)] if drawn else []
    if not seen.system:
        parts.append(tag("p", f"No picture: {seen.why_not}.", class_="note"))
    if seen.system and seen.system.guesses:
        parts.append(tag("p", f"Assumed: {'; '.join(map(plain, seen.system.guesses))}.", class_="note"))
    if lines:
        parts.append(tag("pre", lines, tabindex="0", role="region", aria_label=f"{seen.run.machine} in words"))
    return joined([name, *parts])


def environment(found: Sequence[Seen]) -> Markup:
    """Host, versions and variables of each run."""
    return section("environment", "Environment", *by_run(found, _environment))


def _environment(seen: Seen) -> Iterator[str]:
    said = seen.run.run.header["environment"]
    rows = [(name, str(said[name])) for name in ("host", "system") if name in said]
    rows += list(said["versions"].items())[:MOST_FACTS]
    rows += [(f"${name}", value) for name, value in list(said["variables"].items())[:MOST_FACTS]]
    if command := seen.run.run.header.get("command"):
        words = [str(each) for each in command if isinstance(each, str)] if isinstance(command, list) else []
        rows += [("command", plain(" ".join(words)))] if words else []
    if rows:
        yield table(f"Environment of {seen.run.label}", ("what", "value"), rows, class_="narrow")
    else:
        yield tag("p", "The run file does not say.", class_="note")
    if not said["variables"]:
        yield tag("p", "None of the variables that change these numbers was set.", class_="note")
