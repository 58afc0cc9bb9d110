"""Name the slow rank, link, node or leaf of many, in rounds of disjoint groups, or by a table of pairs."""

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
