"""Two runs side by side: estimates, verdicts, what cannot be compared, an exit status."""
