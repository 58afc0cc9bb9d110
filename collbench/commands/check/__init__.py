"""One verdict in a line: is everything right and as fast as expected? With the evidence for machines that act on it."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "check",
        section="Is it right?",
        place=1,
        summary="Say in one line whether this machine, a run, a log or a fleet is right and as fast as expected.",
        together=True,
        functions={"check": "library"},
    ),
    Command(__name__, "diagnose", code="diagnose:command", functions={"diagnose": "diagnose"}, now="check"),
)
