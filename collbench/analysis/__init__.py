"""The meaning of measured numbers: each module answers one question."""
