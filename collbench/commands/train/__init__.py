"""Plan a training run: layouts that fit, how long a step takes, what holds it up, and what it costs."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "train",
        "What should it be?",
        2,
        functions={"train": "library"},
        rows=("rows:PlannedStep",),
        part="section:SECTION",
        lists={"models": "models:listed"},
    ),
)
