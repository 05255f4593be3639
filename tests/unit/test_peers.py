"""bench.peers: what is made of the runs, and that the published table is made of the published data."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from bench.peers import install, peers, report


def run(peer: str, workload: str, number: int, **figures: float) -> dict[str, Any]:
    return {"peer": peer, "workload": workload, "round": number, "size": 1.0, "at": 1, **figures}


@pytest.fixture
def data() -> dict[str, Any]:
    runs = [
        run("Holdfast", "drain", n, jobs=50_000, per_s=rate) for n, rate in enumerate((50_000.0, 61_234.0, 70_000.0))
    ]
    runs += [run("Holdfast", "latency", n, jobs=200, p50_ms=1.84, p99_ms=5.6) for n in range(3)]
    runs += [run("Celery", "drain", n, jobs=5_000, per_s=1_061.0) for n in range(3)]
    runs += [run("Celery", "drain", 0, jobs=100, per_s=9e9) | {"size": 0.1}]  # a try
    server = {"server_version": "15.2 (Debian)", "fsync": "on", "synchronous_commit": "on"}
    machine = {"cpu": "x", "cores": 2, "memory_gb": 24, "postgresql": server, "redis": "aof", "day": "2026-11-19"}
    found = [
        {
            "name": "Holdfast",
            "store": "PostgreSQL",
            "tenants": "10 at once",
            "versions": {"holdfast": "1"},
            "settings": "d",
        },
        {"name": "Celery", "store": "Redis", "tenants": "", "versions": {"celery": "5"}, "settings": "prefork"},
    ]
    return report.collect(runs, found, machine)


def test_medians_are_of_full_rounds(data: dict[str, Any]) -> None:
    assert [peer["medians"]["drain"]["per_s"] for peer in data["peers"]] == [61_234.0, 1_061.0]
    assert [each["per_s"] for each in data["peers"][1]["runs"]["drain"]] == [1_061.0] * 3


def test_the_table_has_medians_settings_and_circumstances(data: dict[str, Any]) -> None:
    shown = report.table(data)
    assert "| Holdfast | - | - | **61,200** | - | **1.8 / 6 ms** | - |" in shown
    assert "| Celery on Redis | - | - | 1,060 | - | - | - |" in shown
    assert "Medians of 3 rounds" in shown and "PostgreSQL 15.2 with fsync on" in shown
    assert "| Celery | celery 5 | prefork | none |" in shown


def test_the_chart_is_svg_with_a_bar_for_each(data: dict[str, Any]) -> None:
    root = ET.fromstring(report.chart(data))  # noqa: S314 - our own
    bars = [each for each in root.iter() if each.get("class") in ("bar", "ours")]
    assert [bar.get("width") for bar in bars] == [str(report.CHART_WIDTH), "9"]


def test_peers_are_chosen_by_name() -> None:
    assert [each.name for each in peers.chosen("pg-boss, Graphile-Worker")] == ["pg-boss", "Graphile Worker"]
    with pytest.raises(SystemExit, match="unknown peer 'sidekiq'; there are: holdfast, graphile-worker"):
        peers.chosen("sidekiq")


def test_every_peer_has_an_adapter_and_pinned_packages() -> None:
    for each in peers.ALL:
        assert (install.HERE / "adapters" / each.adapter).exists()
        if each.packages is not None:
            text = (install.HERE / "requirements" / each.packages).read_text()
            assert "*" not in text and re.search(r"==\d|\": \"\d", text), each.packages


def test_the_published_table_and_chart_are_made_of_the_published_data() -> None:
    data = report.load()
    assert report.table(data) in report.PAGE.read_text()
    assert report.CHART.read_text() == report.chart(data)
