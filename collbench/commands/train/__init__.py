"""Plans of a training run: layouts that fit, their step time, memory and cost, from curves of collectives."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "train",
        section="What should it be?",
        place=2,
        summary="Plan a training run: layouts that fit, how long a step takes, what holds it up, and what it costs.",
        functions={"train": "library"},
        rows=("rows:PlannedStep",),
        figures="figure:KINDS",
        part="section:SECTION",
        lists={"models": "models:listed"},
    ),
)
