"""Prometheus' rules alert on what they say, and the dashboard asks for metrics and labels that a check writes."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.conftest import Command
from tests.deploy.programs import DEPLOY, SLOW, passes

pytestmark = pytest.mark.deploy

RULES = DEPLOY / "prometheus" / "rules.yaml"
BOARD = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
EXPRESSIONS = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
LABELS = 'collective="AllReduce",nranks="8",n_nodes="1",implementation="nccl"'


def test_rules_alert_on_made_up_series(tmp_path: Path) -> None:
    passes("promtool", "check", "rules", RULES)
    (tmp_path / "rules.yaml").write_text(RULES.read_text())
    text = (Path(__file__).parent / "rules_test.yaml").read_text().replace("LABELS", LABELS)
    (tmp_path / "test.yaml").write_text(text)
    passes("promtool", "test", "rules", tmp_path / "test.yaml")


def test_dashboard_and_rules_ask_for_metrics_and_labels_that_a_check_writes(here: Command, tmp_path: Path) -> None:
    here("check", *SLOW.split(), "--metrics", str(tmp_path / "collbench.prom"))
    exported = (tmp_path / "collbench.prom").read_text()
    names = set(re.findall(r"^# TYPE (\w+)", exported, re.MULTILINE)) | {"collbench_check_duration_seconds"}
    labels = set(re.findall(r"[{,](\w+)=", exported))
    queries = [variable["query"] for variable in BOARD["templating"]["list"] if variable["type"] == "query"]
    asked = [*EXPRESSIONS, *queries, RULES.read_text()]
    used: set[str] = set()
    for text in asked:
        used |= set(re.findall(r"\bcollbench_\w+", text))
        matched = re.findall(r"[{,](\w+)=~", text) + re.findall(r"label_values\(\w+, (\w+)\)", text)
        for words in re.findall(r"(?:by|on) \(([^)]*)\)", text):
            matched += words.split(", ")
        assert {*matched, *re.findall(r"\$labels\.(\w+)", text)} <= labels, text
    assert used == names, "a metric that no check writes, or of which the dashboard says nothing"


def test_the_dashboards_expressions_are_promql(tmp_path: Path) -> None:
    rules = []
    for number, text in enumerate(EXPRESSIONS):
        rules.append({"record": f"panel{number}", "expr": re.sub(r"\$\w+", ".*", text)})
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in passes("promtool", "check", "rules", tmp_path / "rules.yaml")
