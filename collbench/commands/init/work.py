"""What ranks do in `collbench init`: they make a communicator, use it once, destroy it, and start again."""

from dataclasses import dataclass
from typing import ClassVar

from collbench.cases import Work


@dataclass(frozen=True)
class Init(Work):
    """The life of a communicator, whose first collective is that of the case."""

    FIELD: ClassVar = "init"
    MODULE: ClassVar = "collbench.commands.init.measured"

    @property
    def words(self) -> tuple[str, ...]:
        """What is timed."""
        return ("life of a communicator",)
