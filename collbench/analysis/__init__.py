"""Analysis of measured times; each module answers one question."""
