"""`collbench verify`: check the results of all implementations."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "verify",
        "Is it right?",
        2,
        together=True,
        functions={"verify": "command"},
        rows=("rows:SumBits",),
        works=("rows:Bits",),
    ),
)
