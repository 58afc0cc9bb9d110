"""Runs compared case by case: which became faster or slower, with intervals, and a gate."""
