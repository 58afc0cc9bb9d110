"""`collbench check`: judge this machine, a run, a log or a fleet in one line."""

from collbench.presence import Command

COMMANDS = (
    Command(__name__, "check", "Is it right?", 1, together=True, functions={"check": "library"}),
    Command(__name__, "diagnose", code="command:diagnosis", functions={"diagnose": "library"}, now="check"),
)
