"""Predict what a collective should take on a described system: a sweep on which nothing runs."""

from collbench.presence import Command

COMMANDS = (
    Command(__name__, "predict", "What should it be?", 1, functions={"predict": "command"}),
    Command(__name__, "fit", code="fitted:fit", now="predict --fit RUN"),
)
