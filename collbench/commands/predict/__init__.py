"""Predict what a collective should take on a described system, and fit the model to measured runs."""

from collbench.presence import Command

COMMANDS = (
    Command(__name__, "predict", "What should it be?", 1, functions={"predict": "command"}),
    Command(__name__, "fit", code="fitted:fit", now="predict --fit RUN"),
)
