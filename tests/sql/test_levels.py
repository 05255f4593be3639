"""worker_tick_metrics, worker_health_summary and health_levels: the columns and thresholds that operators know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - a fixture
from tests.support.sql_core import Sql

COLUMNS = {
    "worker_id",
    "tick_started_at",
    "tick_duration_ms",
    "jobs_claimed",
    "jobs_processed",
    "jobs_succeeded",
    "jobs_failed",
    "jobs_throttled",
    "lock_contention_count",
    "tenant_jobs",
    "queue_depth_at_start",
}
SUMMARY = {
    "worker_id",
    "tick_count",
    "avg_tick_duration_ms",
    "total_jobs_claimed",
    "total_jobs_succeeded",
    "total_lock_contentions",
    "last_tick_at",
}


DOCUMENT = {
    "tick_duration": {"warning": 30, "critical": 50},
    "lock_contentions": {"warning": 1},
    "jobs_per_tick": {"warning": 51, "critical": 100},
    "queue_depth": {"warning": 100, "critical": 500},
}


@pytest.fixture(autouse=True)
def thresholds(sql: Sql) -> Iterator[None]:
    """Those of the outreach document, which has ticks."""
    ((before,),) = sql("select value from settings where name = 'thresholds'")
    sql("update settings set value = %s::jsonb where name = 'thresholds'", [json.dumps(DOCUMENT)])
    yield
    sql("update settings set value = %s::jsonb where name = 'thresholds'", [json.dumps(before)])


def record(
    sql: Sql, worker: str = "w", seconds: float = 1, claimed: int = 1, contention: int = 0, kind: str = "tick"
) -> None:
    sql(
        "select record_tick(%s, '{default}', %s, %s, 3, 2, 1, 4, %s, '{\"acme\": 1}', %s, 7)",
        [worker, seconds, claimed, contention, kind],
    )


def levels(sql: Sql) -> dict[str, str]:
    names = [*DOCUMENT]
    return dict(sql("select metric, level from health_levels where metric = any (%s)", [names]))


def columns(sql: Sql, view: str) -> set[str]:
    query = "select column_name from information_schema.columns where table_schema = 'holdfast' and table_name = %s"
    return {name for (name,) in sql(query, [view])}


def test_the_views_have_every_column_operators_ask_for(sql: Sql) -> None:
    assert columns(sql, "worker_tick_metrics") >= COLUMNS
    assert columns(sql, "worker_health_summary") >= SUMMARY


def test_a_row_shows_what_was_recorded(sql: Sql) -> None:
    record(sql, seconds=2.5, claimed=9, contention=5)
    assert sql(
        "select worker_id, tick_duration_ms, jobs_claimed, jobs_processed, jobs_succeeded, jobs_failed, "
        "jobs_throttled, lock_contention_count, tenant_jobs, queue_depth_at_start, "
        "queue_depth_at_end, kind from worker_tick_metrics"
    ) == [("w", 2500, 9, 3, 2, 1, 4, 5, {"acme": 1}, 7, 0, "tick")]


def test_the_summary_is_of_the_last_five_minutes_for_each_worker(sql: Sql, clock: Clock) -> None:
    record(sql, "old", claimed=100)
    clock.advance(290)
    record(sql, "a", seconds=1, claimed=10, contention=1)
    record(sql, "a", seconds=3, claimed=20, contention=1)
    query = (
        "select worker_id, tick_count, avg_tick_duration_ms, total_jobs_claimed, total_jobs_succeeded, "
        "total_lock_contentions, last_tick_at from worker_health_summary order by 1"
    )
    assert sql(query)[0] == ("a", 2, 2000, 30, 4, 2, clock.now)
    assert [row[0] for row in sql(query)] == ["a", "old"]
    clock.advance(10)
    assert [row[0] for row in sql(query)] == ["a"]


def test_a_pass_that_took_longer_than_the_window_is_in_it_when_it_ends(sql: Sql, clock: Clock) -> None:
    record(sql, seconds=900)
    assert levels(sql)["tick_duration"] == "critical"


@pytest.mark.parametrize(
    ("metric", "values"),
    [
        ("tick_duration", {0: "good", 29.9: "good", 30: "warning", 50: "warning", 50.1: "critical"}),
        ("lock_contentions", {0: "good", 1: "warning", 5: "warning", 1_000_000: "warning"}),
        ("jobs_per_tick", {10: "good", 50: "good", 51: "warning", 100: "warning", 101: "critical"}),
        ("queue_depth", {0: "good", 99: "good", 100: "warning", 500: "warning", 501: "critical"}),
        ("no_such_metric", {1: None}),
    ],
)
def test_thresholds_are_those_of_the_table_for_operators(
    sql: Sql, metric: str, values: dict[float, str | None]
) -> None:
    assert {each: sql("select level_of(%s, %s)", [metric, each])[0][0] for each in values} == values
    assert sql("select level_of(%s, null)", [metric]) == [(None,)]


def test_the_worst_of_each_figure_counts(sql: Sql) -> None:
    assert set(levels(sql).values()) == {None}
    record(sql, "a", seconds=31, claimed=60)
    record(sql, "b", seconds=1, claimed=5, contention=6)
    assert levels(sql) == {
        "tick_duration": "warning",
        "lock_contentions": "warning",
        "jobs_per_tick": "warning",
        "queue_depth": "good",
    }
    fields = "tick_duration_level, lock_contentions_level, jobs_per_tick_level"
    assert sql(f"select {fields} from worker_health_summary order by worker_id") == [
        ("warning", "good", "warning"),
        ("good", "warning", "good"),
    ]


def test_a_window_is_not_judged_as_a_tick(sql: Sql) -> None:
    record(sql, seconds=600, claimed=100_000, contention=5000, kind="window")
    assert levels(sql) == {
        "tick_duration": None,
        "lock_contentions": None,
        "jobs_per_tick": None,
        "queue_depth": "good",
    }
    fields = "tick_duration_level, lock_contentions_level, jobs_per_tick_level"
    assert sql(f"select {fields} from worker_health_summary") == [(None, None, None)]


def test_windows_and_ticks_are_counted_apart_and_their_jobs_together(sql: Sql, clock: Clock) -> None:
    record(sql, seconds=60, claimed=100, kind="window")
    clock.advance(5)
    record(sql, seconds=2, claimed=10)
    fields = "tick_count, window_count, avg_tick_duration_ms, total_jobs_claimed, last_tick_at - last_window_at"
    assert sql(f"select {fields} from worker_health_summary") == [(1, 1, 2000, 110, timedelta(seconds=5))]


def test_the_depth_is_what_workers_saw_last(sql: Sql) -> None:
    sql("insert into live (id, task) select gen_random_uuid(), 't' from generate_series(1, 600)")
    record(sql)
    assert levels(sql)["queue_depth"] == "critical"
    sql("delete from live")
    record(sql)
    assert levels(sql)["queue_depth"] == "good"


def test_operators_set_thresholds_of_their_own(sql: Sql) -> None:
    sql("update settings set value = jsonb_set(value, '{queue_depth,warning}', '0') where name = 'thresholds'")
    record(sql)
    assert levels(sql)["queue_depth"] == "warning"


def test_a_depth_above_ten_thousand_is_about_right_and_cheap(sql: Sql) -> None:
    sql("insert into live (id, task, queue) select gen_random_uuid(), 't', 'deep' from generate_series(1, 10100)")
    sql("analyze live")
    assert 10_000 <= sql("select count_waiting('{deep}')")[0][0] <= 10_200
    assert sql("select count_waiting('{other}')") == [(0,)]
