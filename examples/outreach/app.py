"""Outreach: a job touches one contact of a campaign; the message goes out through the outbox, once.

Workers: `holdfast worker outreach.app:hf`, as many as you like. Or ticks, by cron: `holdfast tick outreach.app:hf`, and
over HTTP `holdfast serve outreach.app:hf --tick`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import psycopg
from aiohttp import ClientSession, ClientTimeout

from holdfast import Context, Delivery, Holdfast, Retry

# The document's numbers, under their names.
MAX_JOBS_PER_TICK = int(os.environ.get("MAX_JOBS_PER_TICK", "200"))
MAX_JOBS_PER_TENANT_PER_TICK = int(os.environ.get("MAX_JOBS_PER_TENANT_PER_TICK", "25"))
LOCK_TIMEOUT = float(os.environ.get("LOCK_TIMEOUT", "300"))  # seconds; a dead worker's jobs are reclaimed then
# The ticks of cron: first the jobs of job_queue, then the messages of the outbox, both within these bounds.
TICKS: list[dict[str, Any]] = [
    {"max_jobs": MAX_JOBS_PER_TICK, "per_tenant": MAX_JOBS_PER_TENANT_PER_TICK, "queues": [queue]}
    for queue in ("default", "outbox")
]

hf = Holdfast(lease=LOCK_TIMEOUT, renew=min(20.0, LOCK_TIMEOUT / 4))


@dataclass
class Message:
    to: str
    text: str


@hf.task(name="outreach.touch", retry=Retry.exponential(base=1, cap=60, max_attempts=5))
async def touch(ctx: Context, contact: str, campaign: str, channel: str = "email") -> None:
    """Write row, message and the end of the job in one transaction: a worker that dies leaves all of them or none."""
    async with ctx.transaction() as conn:
        await conn.execute(
            "insert into outreach.touches (tenant_id, campaign, contact, channel) values (%s, %s, %s, %s) "
            "on conflict do nothing",
            [ctx.tenant, campaign, contact, channel],
        )
        await ctx.aemit(channel, Message(contact, f"{campaign}: hello"), key=f"{campaign}:{contact}")


@hf.resource
async def provider() -> AsyncIterator[ClientSession]:
    """Yield the session of the e-mail and text provider, one for each worker."""
    agent = {"User-Agent": f"outreach/{os.getpid()}"}
    async with ClientSession(os.environ["PROVIDER_URL"], headers=agent, timeout=ClientTimeout(30)) as session:
        yield session


# Priority 0: a worker sends started messages before it touches the next contact, so the outbox stays short.
@hf.channel("email", priority=0)
async def email(delivery: Delivery[Message], *, http: ClientSession = provider.value) -> None:
    await send(delivery, http)


@hf.channel("sms", priority=0)
async def sms(delivery: Delivery[Message], *, http: ClientSession = provider.value) -> None:
    await send(delivery, http)


async def send(delivery: Delivery[Message], http: ClientSession) -> None:
    """Send, unless an interrupted attempt has: a dead worker may have sent without being able to record it."""
    key = delivery.idempotency_key
    if delivery.maybe_sent:
        async with http.get("/sent", params={"key": key}) as response:
            if response.status == 200:
                return
    body = asdict(delivery.payload)
    async with http.post(f"/{delivery.channel}", json=body, headers={"Idempotency-Key": key}) as response:
        if response.status != 409:  # it has this key: sent before, so there is nothing left to do
            response.raise_for_status()


def enqueue(campaign: str, contacts: Mapping[str, int]) -> int:
    """Touch this many contacts of each tenant, every fifth by text; all of them become due in one moment."""
    with psycopg.connect(hf.database.url) as conn:
        add_tenants(conn, contacts)
        for tenant, number in contacts.items():
            calls = [(f"{n}@{tenant}.example", campaign, "email" if n % 5 else "sms") for n in range(number)]
            touch.using(tenant=tenant, conn=conn).enqueue_many(calls)
    return sum(contacts.values())


def add_tenants(conn: psycopg.Connection[Any], ids: Mapping[str, int]) -> None:
    conn.execute("insert into outreach.tenants select unnest(%s::text[]) on conflict do nothing", [list(ids)])
