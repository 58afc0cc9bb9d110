"""Collectives measured over message sizes, in one setting or in two by turns."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "sweep",
        section="How fast?",
        place=1,
        summary="Measure collectives over a sweep of message sizes: table, run file and plots.",
        together=True,
        functions={"sweep": "command"},
    ),
)
