"""Prometheus: what a worker exposes on its port, what the database holds, and labels that stay bounded."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import threading
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import ConfigurationError, Fail, Holdfast
from holdfast.telemetry.metrics import FOLD, MOST_LABELS, OTHERS, DatabaseMetrics, Stats, exposition
from holdfast.worker import probes
from tests.support import flow
from tests.support.running import until, working

Sql = Callable[..., list[tuple[Any, ...]]]


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(text)
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value for family in families for each in family.samples
    }


def of(read: Any, name: str, **labels: str) -> float:
    return read[(name, tuple(sorted(labels.items())))]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def scraped(port: int) -> Any:
    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            return response.read().decode()

    return samples(await asyncio.to_thread(get))


async def test_a_worker_shows_what_it_did(hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="ok")
    async def ok() -> None:
        await asyncio.sleep(0.02)

    @hf.task(name="bad")
    async def bad() -> None:
        raise Fail("no")

    flow.put(sql, task="ok", tenant="acme", number=5)
    flow.put(sql, task="bad", number=2)
    flow.put(sql, task="unknown", number=1)
    port = free_port()
    async with working(hf, metrics_port=port, concurrency=7) as worker:
        await until(lambda: worker.finisher.succeeded == 5 and worker.finisher.failed == 2)
        await until(lambda: OTHERS in worker.finisher.stats.read())
        read = await scraped(port)
    assert of(read, "holdfast_attempts_total", task="ok", outcome="succeeded") == 5
    assert of(read, "holdfast_attempts_total", task="bad", outcome="failed") == 2
    assert of(read, "holdfast_attempts_total", task=OTHERS, outcome="snoozed") == 1
    assert of(read, "holdfast_attempt_duration_seconds_count", task="ok") == 5
    assert of(read, "holdfast_attempt_duration_seconds_bucket", task="ok", le="0.01") == 0
    assert of(read, "holdfast_attempt_duration_seconds_bucket", task="ok", le="+Inf") == 5
    assert of(read, "holdfast_attempt_duration_seconds_sum", task="ok") >= 0.1
    assert of(read, "holdfast_jobs_claimed_total") == 8
    assert of(read, "holdfast_claims_total") >= 1
    assert of(read, "holdfast_worker_slots") == 7
    assert "acme" not in str(read)
    with pytest.raises(OSError, match="refused"):
        await scraped(port)


async def test_a_port_that_is_taken_is_left_for_the_next(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    with socket.socket() as taken, caplog.at_level("INFO", "holdfast"):
        taken.bind(("127.0.0.1", port))
        taken.listen()
        async with working(hf, metrics_port=port):
            await until(lambda: "metrics shown" in caplog.text)
    shown = re.search(r"metrics shown .*port=(\d+)", caplog.text)
    assert shown is not None and port < int(shown[1]) < port + 10  # the next may be taken, too


def test_a_host_that_is_not_this_machine_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="metrics_port"), probes.served("metrics", "203.0.113.1", 9999, {}):
        pass


def test_labels_cannot_run_away() -> None:
    stats = Stats({f"t{n}": None for n in range(MOST_LABELS * 2)})
    for n in range(MOST_LABELS * 2):
        stats.note(f"t{n}", "succeeded", 0.1)
        stats.note(f"made up {n}", "failed", 0.1)
    read = stats.read()
    assert len(read) <= MOST_LABELS + 1
    assert sum(sum(outcomes.values()) for outcomes, _, _ in read.values()) == MOST_LABELS * 4


def test_a_label_that_was_shown_stays_and_no_counter_goes_back() -> None:
    stats = Stats({f"t{n}": None for n in range(MOST_LABELS + 50)})
    for n in range(MOST_LABELS + 50):
        stats.succeeded[f"t{n}"] += [0.1] * 5
    before = stats.read()
    late = f"t{MOST_LABELS + 40}"
    stats.note(late, "failed", 0.1)
    stats.succeeded[late] += [0.1] * FOLD
    stats.settle()
    after = stats.read()
    assert list(after) == list(before) and len(after) == MOST_LABELS + 1 and late not in after
    grown = {name: after[name][0]["succeeded"] - before[name][0]["succeeded"] for name in before}
    assert {name: number for name, number in grown.items() if number} == {OTHERS: FOLD}


def test_no_attempt_is_lost_between_buckets() -> None:
    stats = Stats({"t": None})
    for n in range(FOLD * 2 + 7):
        stats.note("t", "succeeded", (n % 4) * 0.004)
    stats.note("t", "released", None)
    outcomes, below, seconds = stats.read()["t"]
    assert outcomes == {"succeeded": FOLD * 2 + 7, "released": 1}
    assert below == sorted(below) and below[-1] == FOLD * 2 + 7
    assert below[0] == len([n for n in range(FOLD * 2 + 7) if n % 4 == 0])
    assert seconds == pytest.approx(sum((n % 4) * 0.004 for n in range(FOLD * 2 + 7)))
    assert stats.read() == stats.read()


def test_successes_are_counted_before_and_after_they_are_settled() -> None:
    stats = Stats({"t": None, "u": None})
    for n in range(FOLD * 2 + 7):
        stats.succeeded["t"].append((n % 4) * 0.004)
        if n % 10 == 0:
            stats.settle()
    stats.succeeded["u"].append(0.5)
    stats.note("t", "failed", 0.002)
    before = stats.read()
    assert before["t"][0] == {"succeeded": FOLD * 2 + 7, "failed": 1} and before["u"][0] == {"succeeded": 1}
    assert before["t"][1][-1] == FOLD * 2 + 8
    assert before["t"][2] == pytest.approx(0.002 + sum((n % 4) * 0.004 for n in range(FOLD * 2 + 7)))
    assert stats.read() == before
    stats.succeeded["u"] += [0.5] * FOLD
    stats.settle()
    assert not stats.succeeded["u"] and stats.read()["u"][0] == {"succeeded": FOLD + 1}


def test_nothing_is_lost_or_counted_twice_during_a_read() -> None:
    stats, over, read = Stats({"t": None}), threading.Event(), []

    def reads() -> None:
        while not over.is_set():
            outcomes, below, _ = stats.read().get("t", ({"succeeded": 0}, [0], 0.0))
            read.append((outcomes["succeeded"], below[-1]))

    reader = threading.Thread(target=reads)
    reader.start()
    for n in range(FOLD * 50):
        stats.succeeded["t"].append(0.1)
        if n % 100 == 0:
            stats.settle()
    over.set()
    reader.join()
    assert stats.read()["t"][0] == {"succeeded": FOLD * 50}
    assert read == sorted(read) and all(counted == timed <= FOLD * 50 for counted, timed in read)


def test_tasks_may_succeed_for_the_first_time_during_a_read(request: pytest.FixtureRequest) -> None:
    """Making the pairs of a dictionary's items may start the collector, and with that another thread may run."""
    stats, reader, others = Stats({}), threading.current_thread(), []
    for n in range(100):
        stats.succeeded[f"t{n}"].append(0.1)

    def another_succeeds(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and threading.current_thread() is reader and len(others) < 10:
            others.append(threading.Thread(target=lambda: stats.succeeded[f"new {len(others)}"].append(0.1)))
            others[-1].start()
            others[-1].join(0.02)  # it may wait for the read

    request.addfinalizer(partial(gc.set_threshold, *gc.get_threshold()))
    request.addfinalizer(partial(gc.callbacks.remove, another_succeeds))
    gc.callbacks.append(another_succeeds)
    gc.set_threshold(10)
    while len(others) < 10:
        stats.read()
    for other in others:
        other.join()
    assert stats.read()[OTHERS][0] == {"succeeded": 110}


def database_text(hf: Holdfast) -> str:
    text, kind = exposition(DatabaseMetrics(hf.settings.schema, hf.database.sync_pool.run))
    assert kind.startswith("text/plain")
    return text.decode()


def test_waiting_jobs_in_the_database_are_shown(hf: Holdfast, sql: Sql) -> None:
    flow.put(sql, queue="mail", number=3, age=60)
    sql("select take_snapshot()")
    read = samples(database_text(hf))
    assert of(read, "holdfast_queue_jobs", queue="mail", state="ready") == 3
    assert of(read, "holdfast_queue_oldest_wait_seconds", queue="mail") >= 60
    assert of(read, "holdfast_health_level", metric="wait_over_target") == 1
    assert of(read, "holdfast_workers") == 0
    assert of(read, "holdfast_horizon_holders", kind="transaction") == 0
