"""Measure collectives over a sweep of message sizes: table, run file and plots."""

from collbench.presence import Command

COMMANDS = (Command(__name__, "sweep", "How fast?", 1, together=True, functions={"sweep": "command"}),)
