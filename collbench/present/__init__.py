"""How results are shown: a table's columns described once, and how figures look; lines on stderr."""
