"""Runs as one HTML file that fetches nothing."""
