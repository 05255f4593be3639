"""The alerts fire and end, read metrics that exist, and have a section in the runbook whose commands exist."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Holdfast
from holdfast.store.figures import FigureCalls
from holdfast.store.horizon import KINDS
from holdfast.telemetry.metrics import DatabaseMetrics, RequestMetrics, Stats, WorkerMetrics, exposition
from tests.conftest import ROOT
from tests.support import flow
from tests.support.commands import named_in, problem
from tests.support.running import until, working

Sql = Callable[..., list[tuple[Any, ...]]]
FOLDER = ROOT / "deploy" / "prometheus"
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
NAMES = sorted({rule["alert"] for rule in RULES})
OF_PROMETHEUS = {"up": {"job", "instance"}}  # and on every series
NOT_CHARTED = {"holdfast_worker_info", "holdfast_queue_jobs_estimated", "holdfast_figures_taken_seconds"}
IN_ALERTS_ALONE = {"holdfast_claims_total", "holdfast_horizon_holders"}


@pytest.fixture(name="promtool")
def promtool_fixture() -> str:
    found = os.environ.get("PROMTOOL") or shutil.which("promtool")
    if found is None:
        pytest.skip("NO PROMTOOL: the alerts are not tested; apt-get install prometheus has it")
    return found


def test_every_alert_fires_and_ends(promtool: str) -> None:
    command = [promtool, "test", "rules", "alerts_test.yml"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr


def test_prometheus_accepts_the_files(promtool: str) -> None:
    for command in (["rules", "alerts.yml"], ["config", "--syntax-only", "prometheus.yml"]):
        done = subprocess.run([promtool, "check", *command], cwd=FOLDER, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    cases = [
        each
        for test in yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]
        for each in test["alert_rule_test"]
    ]
    for name in NAMES:
        fired = [bool(each["exp_alerts"]) for each in cases if each["alertname"] == name]
        assert True in fired and fired[-1] is False, name


async def scraped(hf: Holdfast, sql: Sql, port: int) -> dict[str, set[str]]:
    """Return the labels of each metric, from a worker, a service and a database with a bit of everything."""

    @hf.task(name="ok")
    async def ok() -> None: ...

    flow.put(sql, task="ok", number=2)
    flow.put(sql, queue="elsewhere")
    async with working(hf, metrics_port=port) as worker:
        await until(lambda: worker.finisher.succeeded == 2)
        stats, activity = worker.finisher.stats, worker.windows.activity
        assert stats is not None
        sql("select take_snapshot('0')")
        requests = Stats({"GET /v1/jobs"})
        requests.note("GET /v1/jobs", "200", 0.1)
        collectors = (
            WorkerMetrics(stats, activity.counters, activity.gauges),
            DatabaseMetrics(hf.settings.schema, hf.database.sync_pool.run),
            RequestMetrics(requests, lambda: 0),
        )
        text, _ = exposition(*collectors)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def selected(expression: str) -> dict[str, set[str]]:
    """Return the metrics of an expression, each with the labels that it is selected or grouped by."""
    expression = expression.replace("$__rate_interval", "5m")
    names = re.findall(r"\b(holdfast_\w+|up)\b(?:\{([^}]*)\})?", expression)
    grouped = {label for by in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression) for label in re.findall(r"\w+", by)}
    found: dict[str, set[str]] = {}
    for name, selectors in names:
        found.setdefault(name, set()).update(re.findall(r"(\w+)\s*[=!]", selectors))
    return {name: labels | grouped for name, labels in found.items()}


def wrong(expression: str, known: dict[str, set[str]]) -> list[str]:
    return [
        f"{name} {labels - known.get(name, set())}"
        for name, labels in selected(expression).items()
        if name not in known or not labels <= known[name] | {"job", "instance"}
    ]


async def test_alerts_and_dashboard_read_metrics_and_labels_that_exist(
    hf: Holdfast, sql: Sql, unused_tcp_port: int
) -> None:
    known = await scraped(hf, sql, unused_tcp_port) | OF_PROMETHEUS
    panels = json.loads((ROOT / "deploy" / "grafana.json").read_text())["panels"]
    charted = [target["expr"] for panel in panels for target in panel["targets"]]
    alerting = [rule["expr"] for rule in RULES]
    assert len(panels) >= 6 and [each for expr in charted + alerting for each in wrong(expr, known)] == []
    shown = {name for expr in charted for name in selected(expr)}
    ours = {re.sub("_(count|sum|bucket)$", "", name) for name in known if name.startswith("holdfast_")}
    left_out = ours - {re.sub("_(count|sum|bucket)$", "", name) for name in shown}
    assert {name for name in left_out if "http" not in name} == NOT_CHARTED | IN_ALERTS_ALONE


def test_a_wrong_metric_or_label_is_found() -> None:
    known = {"holdfast_workers": set(), "holdfast_health_level": {"metric"}}
    assert wrong("max(holdfast_workers) == 0", known) == []
    assert wrong("max(holdfast_worker) == 0", known) != []
    assert wrong('max(holdfast_health_level{level="x"})', known) != []
    assert wrong("sum by (queue) (holdfast_health_level)", known) != []


async def test_the_levels_of_the_alerts_exist(hf: Holdfast, sql: Sql) -> None:
    levels = {name for rule in RULES for name in re.findall(r'metric="(\w+)"', rule["expr"])}
    assert levels <= {name for (name,) in sql("select metric from health_levels")} and len(levels) == 4


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_has_its_section_in_the_runbook(name: str) -> None:
    for rule in (each for each in RULES if each["alert"] == name):
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert (ROOT / page).exists() and anchor == name.lower()
        assert rule["labels"]["severity"] in ("warning", "critical") and rule["annotations"]["summary"]
    section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", RUNBOOK, re.M | re.S)
    assert section
    for part in ("**Symptom.**", "**Look.**", "**Meaning.**", "**Do.**"):
        assert part in section[1], part
    assert list(named_in(section[1])), "it names a command to look with"


def test_the_runbook_has_no_section_without_an_alert() -> None:
    assert sorted(re.findall(r"^## (Holdfast\w+)$", RUNBOOK, re.M)) == NAMES


@pytest.mark.parametrize("page", ["docs/runbook.md", "docs/guides/production.md"])
def test_commands_in_the_runbook_exist_with_their_options(page: str) -> None:
    commands = list(named_in((ROOT / page).read_text()))
    assert len(commands) > 8
    assert [(each, why) for each in commands if (why := problem(each)) is not None] == []


@pytest.mark.parametrize(
    "arguments", [["jobz"], ["jobs", "shwo"], ["doctor", "--no-such-option"], ["why", "--json", "--x"]]
)
def test_a_wrong_command_is_found(arguments: list[str]) -> None:
    assert problem(arguments) is not None


def test_what_holds_the_horizon_is_counted_and_always_shown(hf: Holdfast, dsn: str) -> None:
    call = FigureCalls(hf.settings.schema).metrics
    with psycopg.connect(dsn) as conn:
        conn.execute("SELECT pg_current_xact_id()")
        assert hf.database.sync_pool.run(call(10, "rest", old=0.0)).holders == {"transaction": 1}
        assert hf.database.sync_pool.run(call(10, "rest")).holders == {}, "it has not been open for long"
    text, _ = exposition(DatabaseMetrics(hf.settings.schema, hf.database.sync_pool.run))
    shown = re.findall(r'holdfast_horizon_holders\{kind="([a-z ]+)"\} 0.0', text.decode())
    assert sorted(shown) == sorted(KINDS), "always all of them, so that the alert ends"
