"""From a sweep to results: starting, checking, timing, storing."""
