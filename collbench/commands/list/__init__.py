"""What there is: collectives, implementations, platforms, systems."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "list",
        section="Files",
        place=3,
        summary="List collectives, implementations, platforms and systems, and which implementation does what where.",
    ),
)
