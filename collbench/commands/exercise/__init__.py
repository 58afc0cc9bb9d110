"""Ten exercises: write kernels that synchronise ranks, and have them judged in seconds."""

from collbench.presence import Command

COMMANDS = (Command(__name__, "exercise", "Learn", 2),)
