"""What a collective should take on a described system, and what a change of its network does."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "predict",
        section="What should it be?",
        place=1,
        summary="Predict what a collective should take on a described system: a sweep on which nothing runs.",
        functions={"predict": "command"},
    ),
    Command(__name__, "fit", code="fitted:fit", now="predict --fit RUN"),
)
