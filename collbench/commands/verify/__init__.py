"""Every implementation checked at odd sizes."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "verify",
        section="Is it right?",
        place=2,
        summary="Check every implementation, collective, type, reduction and odd size; run it first on a new machine.",
        together=True,
        rows=("rows:SumBits",),
        works=("rows:Bits",),
    ),
)
