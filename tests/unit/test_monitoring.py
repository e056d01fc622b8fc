"""The dashboard and the alerts of monitoring/ are right, and ask for figures that there are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ALERTS, CASES, DASHBOARD = (
    ROOT / "monitoring" / name for name in ("alerts.yml", "alerts.test.yml", "grafana.json")
)
LABELS = {
    name: {"job", "instance", *labels.split(", ")}
    for page in ("metrics.md", "messages-operations.md")
    for name, labels in re.findall(
        r"^\| `(drld_\w+)` \| ?(.*?) ?\|", (ROOT / "docs" / page).read_text(), re.M
    )
}
"""The labels of each metric: tests/unit/control/test_metrics.py compares the first page."""
VARIABLES = {"$__rate_interval": "5m", "$__interval": "1m", "$job": ".*", "$limit": ".*"}


def promtool(*arguments: str | Path) -> str:
    """The tool's output; the tool must accept its input."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    found = shutil.which("promtool", path=places)
    assert found, "no promtool: scripts/setup installs it"
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def asked(node: Any) -> Iterator[str]:
    """All expressions of the dashboard."""
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key == "expr")
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from asked(child)


def expressions() -> list[str]:
    """The expressions of the dashboard, with values for its variables."""
    names = re.compile("|".join(map(re.escape, VARIABLES)))
    return [
        names.sub(lambda match: VARIABLES[match[0]], expression)
        for expression in asked(json.loads(DASHBOARD.read_text()))
    ]


def check_names(expression: str) -> None:
    """Every metric of an expression is there, with the labels that the expression asks for."""
    # The page has the names of bytes; another unit replaces the word.
    expression = re.sub(r"_(requests|messages)(?=_total|_per_second)", "_bytes", expression)
    for name, selector in re.findall(r"(drld_\w+)(?:\{(.*?)\})?", expression):
        assert name in LABELS
        assert set(re.findall(r"(\w+)(?:=|!)", selector)) <= LABELS[name], expression
    for labels in re.findall(r"\bby \((.*?)\)", expression):
        for name in re.findall(r"drld_\w+", expression):
            assert set(labels.split(", ")) <= LABELS[name], expression


def test_the_dashboard_uses_existing_metrics(tmp_path: Path) -> None:
    found = expressions()
    assert len(found) > 15
    rules = [{"record": f"panel:{at}", "expr": it} for at, it in enumerate(found)]
    # YAML, as all JSON is.
    (file := tmp_path / "rules.yml").write_text(
        json.dumps({"groups": [{"name": "dashboard", "rules": rules}]})
    )
    assert f"SUCCESS: {len(found)} rules found" in promtool("check", "rules", file)
    for expression in found:
        assert "$" not in expression
        check_names(expression)


def test_legends_and_variables_use_existing_labels() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            wanted = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            for name in re.findall(r"drld_\w+", target["expr"]):
                assert wanted <= LABELS[name], target
            for kept in re.findall(r"\bby \((.*?)\)", target["expr"]):
                assert wanted <= set(kept.split(", ")), target
    for variable in dashboard["templating"]["list"][1:]:
        name, label = re.findall(r"\((drld_\w+).*, (\w+)\)$", variable["query"]["query"])[0]
        assert label in LABELS[name]


def test_panels_do_not_overlap() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in dashboard["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len({*cells})
    assert max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_alerts_use_existing_metrics() -> None:
    promtool("check", "rules", ALERTS)
    for expression in re.findall(r"expr: (.*?)\n +for:", ALERTS.read_text(), re.S):
        check_names(expression)


def test_each_alert_fires_and_does_not_fire() -> None:
    alerts = re.findall(r"- alert: (\w+)", ALERTS.read_text())
    assert len(alerts) == len({*alerts}) > 10
    cases = re.findall(r"- alertname: (\w+)\n.*\n +exp_alerts:( \[\])?", CASES.read_text())
    assert sorted(cases) == sorted((name, none) for name in alerts for none in ("", " []"))
    promtool("test", "rules", CASES)


def test_names_of_events_and_reasons_are_those_of_the_code() -> None:
    code = "".join(path.read_text() for path in (ROOT / "drld").rglob("*.py"))
    values = re.findall(r'(?:event|reason)=~"(.*?)"', ALERTS.read_text())
    for value in "|".join(values).split("|"):
        assert re.search(rf'"{value}"', code), value
