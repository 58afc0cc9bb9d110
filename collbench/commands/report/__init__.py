"""Runs as one HTML file that fetches nothing."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "report",
        section="Show",
        place=2,
        summary="Write a report of runs: one HTML file with curves, verdicts and all rows, for any browser.",
        functions={"report": "command"},
    ),
)
