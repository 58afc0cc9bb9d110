"""The tool that counts right verdicts: what is plain is called so in each way."""

from pathlib import Path

from tests.conftest import ROOT, needs_command
from tools.verdicts import FAULTS, WAYS, chosen, judged, table


def test_a_size_that_takes_ten_times_as_long_is_slow_and_a_healthy_curve_is_not(tmp_path: Path) -> None:
    for command in ("import", "check", "compare"):
        needs_command(command)
    curve = min(chosen(), key=lambda one: len(one.rows))
    outcomes = list(judged(tmp_path, ROOT, curve, (FAULTS[0], FAULTS[-1])))
    said = {(one.fault, one.way): one.verdict for one in outcomes}
    assert len(said) == len(outcomes) == 2 * len(WAYS)
    assert said["none", "reference"] == said["none", "model"] == "OK"
    assert {said[FAULTS[-1].name, way] for way in ("reference", "gate")} == {"SLOW"}
    assert "healthy: 1 of 1 OK" in list(table(outcomes))
