"""Where the time of an operation goes: kernels traced, a timeline, a trace for Perfetto."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "explain",
        section="How fast?",
        place=2,
        summary="Show where the time of an operation goes: its parts, a timeline, a trace for Perfetto.",
        together=True,
        figures="figure:KINDS",
        part="section:SECTION",
        drawn=("Explanation",),
    ),
)
