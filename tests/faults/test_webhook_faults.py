"""Webhooks while workers are killed: every event arrives, under the same ids each time, and signed (I12)."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from aiohttp import web

from holdfast import Event, Holdfast
from holdfast.effects import verify
from tests.support.receiver import receiving
from tests.support.running import until
from tests.support.workers import fleet

EVENTS = 400


async def respond_slowly() -> web.Response:
    await asyncio.sleep(random.uniform(0.005, 0.05))
    return web.Response(status=204)


async def test_every_event_arrives_while_workers_are_killed(
    dsn: str, hf: Holdfast, sql: Any, tmp_path: Path, seeded: random.Random
) -> None:
    async with receiving(lambda _: respond_slowly()) as receiver:
        secrets = {}
        for tenant in ("a", "b"):
            secrets[tenant] = hf.webhooks.add(receiver.url, tenant=tenant, dev=True).secret
        published = [hf.webhooks.publish(None, Event("n", {"n": n}, tenant="ab"[n % 2])) for n in range(EVENTS)]
        settings = {
            "app": "hooks",
            "queues": "webhooks",
            "lease": 1.0,
            "renew": 0.3,
            "poll": 0.2,
            "upkeep": 0.2,
            "concurrency": 5,
        }

        def rage() -> int:
            with fleet(dsn, tmp_path, 3, seeded, **settings) as made:
                made.rage(6, (0.05, 0.4), lambda: not sql("select 1 from jobs where status <> 'succeeded' limit 1"))
                asyncio.run(until(lambda: not sql("select 1 from live") and not sql("select 1 from later"), 60))
                return made.kills

        kills = await asyncio.to_thread(rage)
    expected = {each.deliveries[0]: each.event for each in published}
    assert {(got.delivery, got.event) for got in receiver.got} == set(expected.items())
    for got in receiver.got:
        tenant = sql("select tenant from history where id = %s", [got.delivery])[0][0]
        verify(got.body, got.headers, secrets[tenant])
    assert sql("select status, count(*) from webhook_deliveries group by 1") == [("DELIVERED", EVENTS)]
    print(f"{kills} kills, {len(receiver.got) - EVENTS} deliveries seen again")
    assert kills >= 3 and len(receiver.got) < EVENTS * 1.5
