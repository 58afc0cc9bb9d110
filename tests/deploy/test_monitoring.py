"""Prometheus' rules alert on what they say, and the dashboard asks for metrics and labels that a check writes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Command
from tests.deploy.programs import DEPLOY, SLOW, passes, program, run

pytestmark = pytest.mark.deploy

RULES = DEPLOY / "prometheus" / "rules.yaml"
DASHBOARD = DEPLOY / "grafana" / "dashboard.json"
LABELS = 'collective="AllReduce",nranks="8",n_nodes="1",implementation="nccl"'


def tried(folder: Path, rules: str) -> tuple[int, str]:
    """Rules with the made-up series: exit status and output of promtool."""
    (folder / "rules.yaml").write_text(rules)
    text = (Path(__file__).parent / "rules_test.yaml").read_text().replace("LABELS", LABELS)
    (folder / "test.yaml").write_text(text)
    done = run(program("promtool"), "test", "rules", folder / "test.yaml")
    return done.returncode, done.stdout + done.stderr


def test_rules_alert_on_made_up_series(tmp_path: Path) -> None:
    passes("promtool", "check", "rules", RULES)
    assert tried(tmp_path, RULES.read_text())[0] == 0, tried(tmp_path, RULES.read_text())[1]


def test_every_rule_is_tried(tmp_path: Path) -> None:
    """Without its limit or its factor each fails its test."""
    text = RULES.read_text()
    for right, wrong in (
        ("status == 2", "status == 1"),
        ("wrong_sizes > 0", "wrong_sizes > 2"),
        ("for: 1d", "for: 2h"),
        ("keep_firing_for: 15m  #", "#"),
        ("2 * 86400", "3 * 86400"),
        ("0.9 * quantile", "0.8 * quantile"),
        (">= 4", ">= 1"),
        ("(0.5, ", "(0, "),
        ('{message_size=~".*[MG]B"}', ""),
        ("gbs / collbench_expected", "gbs * collbench_expected"),
    ):
        assert right in text, right
        status, said = tried(tmp_path, text.replace(right, wrong))
        assert status == 1, (right, said)


@pytest.fixture
def exported(here: Command, tmp_path: Path) -> str:
    """The metrics of a check with everything in them."""
    here("check", *SLOW.split(), "--metrics", str(tmp_path / "collbench.prom"))
    return (tmp_path / "collbench.prom").read_text()


def expressions() -> list[str]:
    """All that the dashboard asks Prometheus for."""
    board: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_dashboard_and_rules_ask_for_metrics_and_labels_that_a_check_writes(exported: str) -> None:
    names = set(re.findall(r"^# TYPE (\w+)", exported, re.MULTILINE)) | {"collbench_check_duration_seconds"}
    labels = set(re.findall(r"[{,](\w+)=", exported))
    board = json.loads(DASHBOARD.read_text())
    queries = [variable["query"] for variable in board["templating"]["list"] if variable["type"] == "query"]
    asked = [*expressions(), *queries, RULES.read_text()]
    for text in asked:
        assert set(re.findall(r"\bcollbench_\w+", text)) <= names, text
        matched = re.findall(r"[{,](\w+)=~", text) + re.findall(r"label_values\(\w+, (\w+)\)", text)
        grouped = [word for words in re.findall(r"(?:by|on) \(([^)]*)\)", text) for word in words.split(", ")]
        assert set(matched + grouped + re.findall(r"\$labels\.(\w+)", text)) <= labels, text
    used = {name for text in asked for name in re.findall(r"\bcollbench_\w+", text)}
    assert used == names, "a metric of which the dashboard says nothing"


def test_the_dashboards_expressions_are_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel{number}", "expr": re.sub(r"\$\w+", ".*", text)} for number, text in enumerate(expressions())
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in passes("promtool", "check", "rules", tmp_path / "rules.yaml")


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23
