"""Print the command that starts ranks with the launcher found here (Slurm, MPI, torchrun), or run it."""

from collbench.presence import Command

COMMANDS = (Command(__name__, "launch", "Start", 0),)
