"""Curves fitted: latency, bandwidth, crossovers, and a calibration for the model."""
