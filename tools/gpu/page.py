"""What came of a campaign's stages: a record a stage on disk, and all of them on one page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tools.gpu.stages import Stage

PAGE, RECORD, LOG = "summary.md", "result.json", "log.txt"
PASSED, FAILED, TIMED_OUT, SKIPPED, BEGUN = "passed", "failed", "timed out", "not possible here", "cut off"
_HEADINGS = {FAILED: "Failed", TIMED_OUT: "Timed out", BEGUN: "Cut off", PASSED: "Passed", SKIPPED: "Not possible here"}


@dataclass(frozen=True)
class Outcome:
    """What came of a stage; BEGUN until it has ended."""

    stage: str
    outcome: str
    command: tuple[str, ...]
    started: str  # ISO 8601
    seconds: float = 0.0
    status: int | None = None
    reason: str = ""
    numbers: tuple[str, ...] = field(default=())
    sources: str = ""  # a digest of what was tried


def folder_of(campaign: Path, stage: Stage) -> Path:
    """Where a stage leaves what it has."""
    return campaign / stage.name


def save(campaign: Path, stage: Stage, outcome: Outcome) -> None:
    """Replace the stage's record at once, so that none is ever half written."""
    _write(folder_of(campaign, stage) / RECORD, json.dumps(asdict(outcome), indent=1) + "\n")


def load(campaign: Path, stages: Sequence[Stage]) -> dict[str, Outcome]:
    """The records that are there, by stage."""
    found = {}
    for stage in stages:
        path = folder_of(campaign, stage) / RECORD
        if path.exists():
            fields = json.loads(path.read_text(encoding="utf-8"))
            found[stage.name] = Outcome(
                **{**fields, "command": tuple(fields["command"]), "numbers": tuple(fields["numbers"])}
            )
    return found


def write_page(campaign: Path, text: str) -> None:
    """The page of a campaign, as far as it has come."""
    _write(campaign / PAGE, text)


def page(stages: Sequence[Stage], outcomes: Mapping[str, Outcome], why_left: Mapping[str, str]) -> str:
    """All stages by what came of them; for those that are left why they were not begun."""
    left = [stage for stage in stages if stage.name not in outcomes]
    counts = [
        f"{len(of_it)} {outcome}"
        for outcome in _HEADINGS
        if (of_it := [stage for stage in stages if _is(stage, outcomes, outcome)])
    ]
    lines = ["# GPU campaign", "", ", ".join([*counts, f"{len(left)} left"]) + "."]
    for outcome in _HEADINGS:
        lines += _section(stages, outcomes, outcome)
    lines += ["", "## Left", ""] if left else []
    lines += [f"- **{ready.name}**: {why_left.get(ready.name, 'not begun')} ({ready.shows})" for ready in left]
    return "\n".join(lines) + "\n"


def wrong(stages: Sequence[Stage], outcomes: Mapping[str, Outcome]) -> str:
    """The sections of what did not end as it should."""
    lines = [line for outcome in (FAILED, TIMED_OUT, BEGUN) for line in _section(stages, outcomes, outcome)]
    return "\n".join([*lines, "", ""]) if lines else ""


def _section(stages: Sequence[Stage], outcomes: Mapping[str, Outcome], outcome: str) -> list[str]:
    """The stages of which that came, under a heading; nothing without any."""
    items = [line for stage in stages if _is(stage, outcomes, outcome) for line in _item(stage, outcomes[stage.name])]
    return ["", f"## {_HEADINGS[outcome]}", "", *items] if items else []


def _is(stage: Stage, outcomes: Mapping[str, Outcome], outcome: str) -> bool:
    return stage.name in outcomes and outcomes[stage.name].outcome == outcome


def _item(stage: Stage, outcome: Outcome) -> list[str]:
    """A stage, its reason where it did not pass, and its numbers."""
    first = f"- **{stage.name}** ({outcome.seconds:.0f} s): {stage.shows}"
    if outcome.outcome != PASSED:
        first += f". {outcome.reason}" + ("" if outcome.outcome == SKIPPED else f" (`{stage.name}/{LOG}`)")
    return [first, *(f"  - {number}" for number in outcome.numbers)]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)
