"""Show where the time of an operation goes: its parts, a timeline, a trace for Perfetto."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "explain",
        "How fast?",
        2,
        together=True,
        functions={"explain": "command"},
        figures="figure:KINDS",
        part="section:SECTION",
        drawn=("Explanation",),
    ),
)
