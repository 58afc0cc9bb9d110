"""Runs compared case by case: which became faster or slower, with intervals, and a gate."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "compare",
        section="Is it right?",
        place=3,
        summary="Compare runs: which cases became faster or slower, with intervals, and a gate for CI.",
        functions={"compare": "command"},
    ),
)
