"""Show what connects the ranks here, or in a system that a file describes."""

from collbench.presence import Command

COMMANDS = (Command(__name__, "topo", "What should it be?", 3, functions={"topo": "command"}),)
