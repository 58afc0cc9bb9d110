"""What connects the ranks, here or in a described system."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "topo",
        section="What should it be?",
        place=3,
        summary="Show what connects the ranks here, or in a system that a file describes.",
    ),
)
