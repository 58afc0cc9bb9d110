"""The list of the runs in a folder."""

from collbench.presence import Command

COMMANDS = (Command(__name__, "runs", section="Files", place=4, summary="List the runs of a folder, newest first."),)
