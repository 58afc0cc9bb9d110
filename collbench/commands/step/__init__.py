"""Measure or predict training steps: scaling, overlap, stragglers, and strategies of synchronisation."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "step",
        "How fast?",
        4,
        together=("stragglers", "strategies"),
        rows=("rows:StepTimes", "rows:StepPrediction", "rows:Trained"),
        works=("work:Step", "work:SgdJob"),
        figures="figure:KINDS",
        part="section:SECTION",
    ),
)
