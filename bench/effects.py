"""Workloads of effects: outbox messages, with and without earlier ones, and webhooks to a server on this machine."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.engine import WORKER
from holdfast.bench.bare import run_async
from holdfast.bench.harness import TEXT, Bench, Result, compared
from holdfast.model.job import ids

# Rows as emit() inserts them; the cost of emit() is not measured here.
EMIT = f"""
INSERT INTO live (id, queue, task, payload, max_attempts)
SELECT uuid7(), 'default', 'channel:bench',
       json_build_object('key', n::text, 'body', json_build_object('n', n, 'text', '{TEXT}')), 10
FROM generate_series(1, %s) n
"""
# Messages delivered over the past week, and the keys that prevent sending them again.
PAST = f"""
WITH past AS MATERIALIZED (
    SELECT n, uuid7() AS id, now() - n * interval '7 days' / %(n)s AS at FROM generate_series(1, %(n)s) n),
keys AS (
    INSERT INTO dedupe (key, id, scope, expires_at)
    SELECT 'outbox' || chr(31) || idempotency_key('bench', null, 'past-' || n), id, 'success', at + interval '30 days'
    FROM past)
INSERT INTO history (id, status, priority, attempt, max_attempts, run_at, created_at, started_at, finished_at, queue,
                     task, payload)
SELECT id, 'succeeded', 2, 1, 10, at, at, at, at, 'default', 'channel:bench',
       json_build_object('key', 'past-' || n, 'body', json_build_object('n', n, 'text', '{TEXT}')) FROM past
"""


def deliver(bench: Bench, messages: int, since: int = 0) -> float:
    """Return messages a second to a no-op channel, by one worker process, without `since` earlier ones."""
    with bench.connection() as conn:
        conn.execute(EMIT.encode(), [messages])
    bench.settle()
    bench.drain(messages, module=WORKER)
    number, seconds = bench.window(since, since + messages)
    return number / seconds


def outbox(bench: Bench) -> Result:
    """Delivery to a no-op channel; limit: a plain drain."""
    messages = bench.size(200_000)
    rates = bench.alternate(lambda ours: deliver(bench, messages) if ours else bench.plain_rate(), (False, True) * 3)
    return compared("outbox", messages, *rates)


def delivered(bench: Bench) -> Result:
    """Delivery after a million delivered messages; limit: with none before."""
    messages, past = bench.size(200_000), bench.size(1_000_000)

    def measure(after: bool) -> float:
        if after:
            with bench.connection() as conn:
                conn.execute(PAST.encode(), {"n": past})
                conn.execute("VACUUM ANALYZE history")
        return deliver(bench, messages, past if after else 0)

    return compared("delivered", messages, *bench.alternate(measure), note=f"{past:,} delivered before")


PUBLISH = f"""
SELECT count(publish_event('bench.event', json_build_object('n', n, 'text', '{TEXT}')::text))
FROM generate_series(1, %s) n
"""
ENDPOINTS, AT_ONCE = 20, 50


def webhooks(bench: Bench) -> Result:
    """Signed deliveries to 20 endpoints on this machine; limit: signing and posting alone."""
    number = bench.size(20_000) // 100 * 100  # divisible by ENDPOINTS and AT_ONCE
    with receiver() as (url, counts):
        bare = posts(url, number)
        for _ in range(ENDPOINTS):
            bench.hf.webhooks.add(url, dev=True)
        with bench.connection() as conn:
            conn.execute(PUBLISH.encode(), [number // ENDPOINTS])
        bench.settle()
        rate = bench.drain_rate(number)
        bench.empty()
    connections, requests = counts
    note, problems = f"{connections} connections", judge_requests(connections, requests, 2 * number)
    return compared("webhooks", number, [rate], [bare], problems=problems, note=note)


def judge_requests(connections: int, requests: int, expected: int) -> list[str]:
    """Check that every request arrived, over connections that were kept."""
    problems = [f"{requests} requests arrived of {expected}"] if requests != expected else []
    if connections > 4 * AT_ONCE:
        problems.append(f"{connections} connections for {requests} requests: they are not kept alive")
    return problems


@contextmanager
def receiver() -> Iterator[tuple[str, list[int]]]:
    """Run a receiver in its own process. Yield its URL, and a list for its connections and requests at the end."""
    counts: list[int] = []
    command = [sys.executable, "-m", "bench.receiver"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/hook", counts
        finally:
            process.terminate()
            counts += map(int, process.stdout.read().split())


def posts(url: str, number: int) -> float:
    """Return requests a second when only signing and sending, as deliveries do."""
    from holdfast.effects.send import Sender
    from holdfast.effects.signature import new_secret, sign

    secret, body = new_secret(), f'{{"n": 1, "text": "{TEXT}"}}'.encode()

    async def post_some(sender: Sender) -> None:
        for _ in range(number // AT_ONCE):
            headers = sign(body, [secret], ids.make(), ids.make(), "bench.event", time.time(), "Holdfast")
            await sender.post(url, body, headers, 30.0, dev=True)

    async def post_all() -> float:
        async with Sender() as sender:
            began = time.monotonic()
            await asyncio.gather(*(post_some(sender) for _ in range(AT_ONCE)))
            return number / (time.monotonic() - began)

    rate: float = run_async(post_all())
    return rate


ALL: dict[str, Callable[[Bench], Result]] = {"outbox": outbox, "delivered": delivered, "webhooks": webhooks}
