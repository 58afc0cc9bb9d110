"""`collbench init`: how long a communicator takes to start, by number of ranks."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "startup",
        section="How fast?",
        place=3,
        summary="Measure how long a communicator takes to start: id, communicator, first collective, destroy.",
        together=True,
        functions={"startup": "command"},
        rows=("rows:InitTimes",),
        works=("rows:Init",),
    ),
    Command(__name__, "init", together=True, functions={"init": "command"}, now="startup"),
)
