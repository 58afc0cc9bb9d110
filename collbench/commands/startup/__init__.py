"""Measure how long a communicator takes to start: id, communicator, first collective, destroy."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "startup",
        "How fast?",
        3,
        together=True,
        functions={"startup": "command"},
        rows=("rows:InitTimes",),
        works=("rows:Init",),
    ),
    Command(__name__, "init", together=True, functions={"init": "command"}, now="startup"),
)
