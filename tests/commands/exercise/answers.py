"""The answers to exercises: a solution of each, and typical wrong answers, as changes of it."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collbench.commands.exercise import judge
from collbench.commands.exercise.judge import Judgement
from collbench.commands.exercise.records import Exercise

FOLDER = Path(__file__).with_name("answers")


@dataclass(frozen=True)
class Answer:
    """A kernel, and the words that its judge must say; none for a solution."""

    exercise: Exercise
    name: str
    text: str
    names: str = ""

    @property
    def by_time(self) -> bool:
        """Whether its time decides: of a solution that must beat the library, and of what is right but slow."""
        return bool(self.exercise.beats) and self.names in ("", "faster")

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (self.exercise.files() | {f"{self.exercise.kernel}.cu": self.text}).items():
            (folder / name).write_text(text)
        return folder

    def judged(self, folder: Path) -> Judgement:
        verdict = judge.judge(self.exercise, self.write(folder))
        if verdict.passed and self.exercise.beats:
            return judge.timed(self.exercise, folder, budget=0.2)
        return verdict

    def complaint(self, verdict: Judgement) -> str:
        """What is wrong with that judgement; nothing if it is as it should be."""
        if not self.names:
            return "" if verdict.passed and not verdict.remark else f"a solution failed: {verdict}"
        if verdict.passed and not verdict.remark:
            return "a wrong answer passed"
        said = " ".join([verdict.says, verdict.mistake, *verdict.evidence, verdict.remark])
        return "" if self.names in said else f"{self.names!r} is not in: {said}"


def answers(exercise: Exercise) -> Iterator[Answer]:
    record = tomllib.loads((FOLDER / f"{exercise.kernel}.toml").read_text())
    solution = changed(exercise.files()[f"{exercise.kernel}.cu"], record["solution"])
    yield Answer(exercise, "solution", solution)
    for wrong in record["wrong"]:
        yield Answer(exercise, wrong["name"], changed(solution, wrong["changes"]), wrong["names"])


def changed(text: str, changes: list[tuple[str, str]]) -> str:
    for old, new in changes:
        assert text.count(old) == 1, (text.count(old), old)
        text = text.replace(old, new)
    return text
