"""Draw run files: bandwidth, time, speed-up, share of the bound; or steps, training, timelines."""

from collbench.presence import Command

COMMANDS = (Command(__name__, "plot", "Show", 1, functions={"plot": "command"}),)
