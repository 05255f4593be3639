"""Jobs under a rate beside work that keeps all slots busy: they get what their limits allow."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from holdfast import Holdfast, Limit
from tests.support.running import until, working

RATE, BURST, ENOUGH = 20, 20, 60  # a second; the burst lasts a slow machine for a second
LONGEST = 6.0  # seconds: three times what it takes


@pytest.mark.parametrize(
    ("queues", "key", "priority", "tenant"),
    [
        ("mail,crawl", "source", 2, None),
        ("crawl,mail", "source", 2, "a"),
        ("mail,crawl", "source", 1, "a"),
        ("crawl,mail", "source", 1, None),
        ("mail,crawl", "queue:crawl", 2, None),
        ("crawl,mail", "queue:crawl", 1, "a"),
    ],
)
async def test_a_queue_under_a_rate_gets_what_it_allows_beside_one_that_keeps_all_slots_busy(
    hf: Holdfast, sql: Any, queues: str, key: str, priority: int, tenant: str | None
) -> None:
    """What the rate allows is counted over the time that really passed, from the first start on."""
    starts: list[float] = []
    mails = 0
    # The keys' concurrency is never the narrower limit: fourteen jobs at once would be hundreds a second.
    limits = [Limit("domain:{domain}", concurrency=2), Limit("source:{source}", rate=RATE / 2, per=1, burst=BURST // 2)]

    @hf.task(queue="mail")
    async def mail() -> None:
        nonlocal mails
        mails += 1
        await asyncio.sleep(0.1)

    @hf.task(queue="crawl", priority=priority, limits=limits if key == "source" else [])
    async def visit(domain: int, source: int) -> None:
        starts.append(time.monotonic())
        await asyncio.sleep(0.02)

    if key != "source":
        await hf.limits.aset(key, rate=RATE, per=1, burst=BURST)
    await mail.using(tenant=tenant).aenqueue_many([()] * 3000)
    async with working(hf, queues=queues, concurrency=10) as worker:
        await until(lambda: mails >= 30 and len(worker.buffer.running) == 10)
        await visit.aenqueue_many([(n % 7, n % 2) for n in range(1000)])
        began = time.monotonic()
        await until(lambda: len(starts) >= ENOUGH or time.monotonic() > began + LONGEST)
        passed = time.monotonic() - (starts[0] if starts else began)
        started, ran = len(starts), mails
        assert sql("select count(*) > 0 from live where queue = 'mail' and token is null") == [(True,)]
        allowed = BURST + RATE * passed
        assert started >= 0.9 * allowed, f"{started} of {allowed:.0f} in {passed:.1f} s, beside {ran} others"
