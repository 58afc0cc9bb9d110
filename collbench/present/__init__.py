"""Presentation of results: tables, looks of figures, pages, lines on stderr."""
