"""Plan a training run: layouts that fit, time of a step, bottleneck, and cost."""

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
