"""NCCL's own tuner, rebuilt: the channels it finds, its cost table, its choice."""
