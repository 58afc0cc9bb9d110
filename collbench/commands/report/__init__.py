"""Write a report of runs: one HTML file with curves, verdicts and all rows, for any browser."""

from collbench.presence import Command

COMMANDS = (Command(__name__, "report", "Show", 2, functions={"report": "command"}),)
