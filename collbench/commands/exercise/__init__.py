"""Ten exercises: kernels with a hole, and the judge of what students fill in."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "exercise",
        section="Learn",
        place=2,
        summary="Ten exercises: write kernels that synchronise ranks, and have them judged in seconds.",
    ),
)
