"""`collbench compare`: which cases became faster or slower between runs."""

from collbench.presence import Command

COMMANDS = (Command(__name__, "compare", "Is it right?", 3, functions={"compare": "command"}),)
