"""`collbench scan`: find the slow rank, link, node or leaf among many."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "scan",
        "Who is slow?",
        0,
        together=True,
        functions={"scan": "library", "pairs": "matrices"},
        rows=("rows:Members", "rows:Round", "rows:PairTimes"),
        works=("rows:Scan", "rows:PairMessages"),
        figures="figure:KINDS",
    ),
    Command(__name__, "pairs", code="command:pairs", together=True, now="scan --pairs"),
)
