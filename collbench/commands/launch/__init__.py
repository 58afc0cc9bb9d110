"""The command that starts ranks, for each launcher."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "launch",
        section="Start",
        summary="Print the command that starts ranks with the launcher found here (Slurm, MPI, torchrun), or run it.",
    ),
)
