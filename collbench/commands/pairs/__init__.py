"""Latency and bandwidth of every pair of ranks."""
