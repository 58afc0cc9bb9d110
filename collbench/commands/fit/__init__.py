"""Curves fitted: latency, bandwidth, crossovers, and a calibration for the model."""

from collbench.presence import Command

COMMANDS = (
    Command(
        __name__,
        "fit",
        section="What should it be?",
        place=4,
        summary="Fit measured curves: latency, bandwidth and crossovers with intervals, and a calibration for `--on FILE.toml`.",
    ),
)
