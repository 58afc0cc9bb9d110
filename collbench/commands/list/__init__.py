"""What there is: collectives, implementations, platforms, systems; runs, systems and models by themselves."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "list",
        section="Files",
        place=3,
        summary="List collectives, implementations, platforms and systems; or runs, systems, models.",
        lists={"runs": "runs:command", "systems": "command:systems"},
    ),
    Command(__name__, "runs", code="runs:command", now="list runs"),
)
