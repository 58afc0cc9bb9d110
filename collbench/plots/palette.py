"""Colours of what time and memory go to: one table for pictures and pages, so that a part looks the same everywhere.

Most are Okabe and Ito's, which those who see fewer colours can tell apart.  Waiting and idling are grey, computing is
blue, and what ranks send each other for the gradients is vermilion, in whichever figure.  Nothing is imported here
that draws, so a page that needs the colours alone may have them.
"""

from collections.abc import Mapping

from collbench.results import ADDED, COMMUNICATED, COMPUTED, LAUNCH, MOVED, PUBLISHED, WAITED

OTHERS = "#8A8A8A"
"""Of a part that has no colour of its own."""

PHASES: Mapping[str, str] = {
    LAUNCH: "#F0E442",
    WAITED: "#CCCCCC",
    MOVED: "#56B4E9",
    ADDED: "#009E73",
    PUBLISHED: "#D55E00",
}
"""By the part of an explained operation's time: every name of tracks.PARTS."""

ACTIVITIES: Mapping[str, tuple[str, str]] = {
    COMPUTED: ("#0072B2", "#56B4E9"),
    COMMUNICATED: ("#D55E00", "#E69F00"),
}
"""By what a rank does in a step: two shades, with which buckets take turns; the first stands for the activity."""

STEP_PARTS: Mapping[str, str] = {
    "computing": ACTIVITIES[COMPUTED][0],
    "tensor_parallel": "#E69F00",
    "context_parallel": "#F0A3C0",
    "expert_parallel": "#CC79A7",
    "pipeline_parallel": "#882255",
    "data_parallel": ACTIVITIES[COMMUNICATED][0],
    "bubble": PHASES[WAITED],
    "optimiser": "#009E73",
    "stragglers": "#F0E442",
    "loading": "#7A4A00",
}
"""By the part of a planned step; neighbours in a bar keep apart, also where colours are not seen."""

MEMORY_PARTS: Mapping[str, str] = {
    "weights": "#0072B2",
    "gradients": "#D55E00",
    "optimiser_states": "#009E73",
    "activations": "#E69F00",
    "end_activations": "#F0E442",
    "buffers": "#56B4E9",
    "context_memory": "#882255",
    "fragments": "#CCCCCC",
}
"""By what a GPU's memory holds."""


def css(prefix: str = ".") -> str:
    """Rules of a style sheet that give each phase its colour: `.waited { background: #CCCCCC; }`, one a line."""
    return "\n".join(f"{prefix}{name} {{ background: {colour}; }}" for name, colour in PHASES.items())
