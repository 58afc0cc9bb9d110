"""Measure or predict training steps: scaling, late ranks, overlap and synchronisation strategies."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "step",
        "How fast?",
        4,
        together=True,
        functions={"step": "command"},
        rows=("rows:StepTimes", "rows:StepPrediction", "rows:Trained"),
        works=("work:Step", "work:SgdJob"),
        figures="figure:KINDS",
        part="section:SECTION",
    ),
)
