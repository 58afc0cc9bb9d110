"""Broken files end in results or in one of collbench's own errors, quickly (`make fuzz` tries many more)."""

import time

from hypothesis import HealthCheck, given, settings

from tools.fuzz import LONGEST, broken, outcome


@settings(max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(broken())
def test_broken_files_break_nothing(changed: tuple[str, bytes, int | None]) -> None:
    """Nothing else is raised, nothing hangs, and what was read can be stored, drawn and exported."""
    start = time.process_time()
    outcome(*changed)
    assert time.process_time() - start < LONGEST
