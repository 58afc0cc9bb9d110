"""Figures of runs, drawn by the kinds of figures that are there."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "plot",
        section="Show",
        place=1,
        summary="Draw run files: bandwidth, time, speed-up, share of the bound; or steps, training, timelines.",
        functions={"plot": "command"},
    ),
)
