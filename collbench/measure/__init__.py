"""From a sweep to its results: ranks started, cases carried out, checked and timed, lines written."""
