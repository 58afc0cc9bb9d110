"""Check every implementation, collective, type, reduction and odd size; run it first on a new machine."""

from collbench.presence import Command

COMMANDS = (
    Command(__name__, "verify", "Is it right?", 2, together=True, rows=("rows:SumBits",), works=("rows:Bits",)),
)
