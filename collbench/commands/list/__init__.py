"""List collectives, implementations, platforms and systems; or runs, systems, models, formats."""

from collbench.presence import Command

COMMANDS = (
    Command(__name__, "list", "Files", 3, lists={"runs": "runs:command", "systems": "command:systems"}),
    Command(__name__, "runs", code="runs:command", now="list runs"),
)
