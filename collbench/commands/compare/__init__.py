"""Compare runs: which cases became faster or slower, with intervals, and a gate for CI."""

from collbench.presence import Command

COMMANDS = (Command(__name__, "compare", "Is it right?", 3, functions={"compare": "command"}),)
