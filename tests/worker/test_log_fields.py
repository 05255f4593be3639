"""The fields of a worker's log lines: how long a job took, what was claimed, what succeeded, what fails most."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Fail, Holdfast, Retry
from holdfast.model.job import Job
from holdfast.telemetry.logs import Console, Fields, JsonLines
from holdfast.worker.attempt_log import MOST_KEYS, FailureCounts
from holdfast.worker.prefetch import Lease
from tests.support import flow
from tests.support.running import until, working

Sql = Callable[..., list[tuple[Any, ...]]]


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if getattr(record, "event", "") == event]


async def test_lines_have_durations_counts_and_what_fails_most(
    hf: Holdfast, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    @hf.task(name="fetch")
    async def fetch() -> None:
        await asyncio.sleep(0.02)
        raise Fail("see https://ann:pw@a.example/x?token=1", code="BLOCKED")

    @hf.task(name="fine")
    async def fine() -> None:
        await asyncio.sleep(0.02)

    with caplog.at_level(logging.DEBUG, "holdfast"):
        async with working(hf, window=600.0) as worker:
            flow.put(sql, task="fetch", keys=["domain:a.example"], number=3)
            flow.put(sql, task="fetch", keys=["domain:b.example"], number=1)
            flow.put(sql, task="fine", number=2)
            await until(lambda: worker.finisher.failed == 4)
            await until(lambda: worker.finisher.succeeded == 2)
    (window,) = lines(caplog, "window")
    assert (window["batch_claimed_count"], window["success_count"], window["fail_count"]) == (6, 2, 4)
    assert window["top_failure_keys"] == {"domain:a.example": 3, "domain:b.example": 1}
    assert window["top_failures"] == {"fetch BLOCKED": 4}
    failed, succeeded = lines(caplog, "job failed"), lines(caplog, "job succeeded")
    assert (len(failed), len(succeeded)) == (4, 2)
    assert all(20 <= each["job_duration_ms"] < 20_000 for each in (*failed, *succeeded))
    assert {each["error"] for each in failed} == {"Fail: see https://a.example/x?[query]"}
    as_json = [json.loads(JsonLines().format(record)) for record in caplog.records]
    (line,) = [each for each in as_json if each["event"] == "window"]
    assert line.items() >= window.items()
    assert all("job_duration_ms" in each for each in as_json if each["event"] in ("job failed", "job succeeded"))


def console(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [Console().format(record) for record in caplog.records if getattr(record, "event", "") == event]


async def test_at_level_debug_a_failure_shows_where_it_was_raised_and_a_choice_only_with_its_cause(
    hf: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    @hf.task(name="odd", retry=Retry.none())
    async def odd(how: str) -> None:
        if how == "chosen":
            raise Fail("as agreed")
        try:
            raise ValueError("see https://ann:pw@a.example/x")
        except ValueError as error:
            if how == "caused":
                raise Fail("because of that") from error
            raise

    for level, shown in ((logging.DEBUG, True), (logging.INFO, False)):
        caplog.clear()
        with caplog.at_level(level, "holdfast"):
            await odd.aenqueue_many([["plain"], ["chosen"], ["caused"]])
            async with working(hf) as worker:
                await until(lambda w=worker: w.finisher.failed == 3)
        (plain,), failed = console(caplog, "job dead"), console(caplog, "job failed")
        (chosen,), (caused,) = ([each for each in failed if word in each] for word in ("as agreed", "because of that"))
        assert ("\n  Traceback (most recent call last):\n" in plain) is shown
        assert plain.endswith("\n  ValueError: see https://a.example/x") is shown
        assert "Traceback" not in chosen
        assert ("direct cause" in caused) is shown
        as_json = [json.loads(JsonLines().format(record)) for record in caplog.records]
        assert any("traceback" in each for each in as_json) is shown


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1930.4, "1930"),
        (0.1, "0.1"),
        (12.345, "12.3"),
        (1e-5, "0.00001"),
        (1e9, "1000000000"),
        (-2500.6, "-2501"),
        (99.99, "100"),
        (0.0, "0"),
        (float("inf"), "inf"),
        (3, "3"),
        (True, "True"),
        (None, "None"),
        ("a b", '"a b"'),
        ({"fetch BLOCKED": 4, "x": 1}, '"fetch BLOCKED: 4, x: 1"'),
        ({}, ""),
    ],
)
def test_values_read_as_people_write_them(value: Any, expected: str) -> None:
    record = logging.LogRecord("holdfast.x", logging.INFO, "", 0, "window", None, None)
    record.fields = {"value": value}
    assert Console().format(record).rpartition("value=")[2] == expected
    assert str(Fields({"value": value})) == f" value={expected}"


async def test_a_task_that_is_unknown_here_is_warned_of_once_a_minute(
    hf: Holdfast, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    for task in ("gone", "gone", "gone too"):
        flow.put(sql, task=task, number=1)
    with caplog.at_level(logging.DEBUG, "holdfast"):
        async with working(hf):
            await until(lambda: len(lines(caplog, "job snoozed")) == 3)
    snoozes = [(r.fields["task"], r.levelname) for r in caplog.records if getattr(r, "event", "") == "job snoozed"]
    assert sorted(snoozes) == [("gone", "DEBUG"), ("gone", "WARNING"), ("gone too", "WARNING")]


def test_very_many_keys_are_not_all_counted() -> None:
    failures = FailureCounts()
    for n in range(MOST_KEYS + 50):
        row = ("id", 1, f"t{n}", b"{}", 1, 5, "q", 2, None, 0.0, None, None, 1, [f"k{n}"], None)
        failures.add(Job(row, Lease(1, 1, 0.0, 60.0)), {"type": "Odd"})
    assert len(failures.keys) == len(failures.kinds) == MOST_KEYS
    assert FailureCounts().top() == {}


def test_log_lines_of_the_connection_pool_have_the_same_form() -> None:
    code = """
import logging
import subprocess
import sys
from holdfast.telemetry import logs
logs.configure("json", "error")
logging.getLogger("psycopg.pool").warning("discarding closed connection: %s", "x")
logging.getLogger("psycopg.pool").info("left out")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["discarding closed connection: x"]
