"""The worker: one job searches one source for one coin, stores the prices it finds and values the coin again.

WORKER_ID=worker-1 holdfast worker coins.app:hf
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import aiohttp
import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from coins.cache import Cache
from coins.config import Config
from coins.listings import FIELDS, Listing, Query, match_strength, value
from coins.markets import TIMEOUT, TRANSIENT, Markets
from holdfast import CONTEXT, Breaker, Context, Fail, Holdfast, Limit, Retry
from holdfast.effects import aupsert_if_stronger

config = Config.load()
hf = Holdfast(lease=config.lock_timeout, renew=config.heartbeat, worker_name=config.worker_id, queues="scrape_jobs")

# base_delay_minutes * 2^retry_count, capped at 24 hours; what is not transient is failed at once.
RETRY = Retry.exponential(base=config.base_delay_minutes * 60, cap=config.max_delay_minutes * 60, max_attempts=12).on(
    retry=TRANSIENT
)

# Each source has a token bucket and a breaker of its own. These numbers of the bucket hold until the row in
# coins.sources changes them; the breaker's cap keeps every pause at five minutes.
SOURCE = Limit(
    "source:{source_id}",
    rate=30,
    per=60,
    burst=5,
    breaker=Breaker(config.breaker_failures, config.breaker_pause, cap=config.breaker_pause, on=TRANSIENT),
)


@hf.resource
async def pool() -> AsyncIterator[AsyncConnectionPool]:
    """Yield the pool that handlers read from before they call a marketplace."""
    async with AsyncConnectionPool(hf.database.url, min_size=1, max_size=4, open=False) as opened:
        yield opened


@hf.resource
async def markets() -> AsyncIterator[Markets]:
    """Yield a client of all marketplaces, behind the cache."""
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        yield Markets(session, Cache(config.cache_path, config.cache_ttl, enabled=config.cache_enabled))


@hf.task(name="coins.scrape", queue="scrape_jobs", retry=RETRY, limits=[SOURCE], timeout=60)
async def scrape(
    intake_id: UUID,
    source_id: str,
    query_params: dict[str, Any],
    *,
    ctx: Context = CONTEXT,
    db: AsyncConnectionPool = pool.value,
    market: Markets = markets.value,
) -> None:
    """Search a source for a coin. `query_params` override the intake; a null removes the intake's value."""
    query, url = await _question(db, intake_id, source_id, query_params)
    listings, cached = await market.search(source_id, url, query, ctx.job_id)
    async with ctx.transaction() as conn:  # prices, valuation and the job's success: all or none
        # One at a time for each intake: the valuation must see what every other job has found.
        await conn.execute("select from coins.coin_intakes where id = %s for update", [intake_id])
        kept = Counter([await _keep(conn, intake_id, source_id, query, each) for each in listings])
        await _value(conn, intake_id)
        ctx.set_result({"cached": cached, **kept})


async def _question(db: AsyncConnectionPool, intake_id: UUID, source_id: str, requests: Query) -> tuple[Query, str]:
    async with db.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            "select i.*, m.url from coins.coin_intakes i, coins.marketplaces m where i.id = %s and m.id = %s",
            [intake_id, source_id],
        )
        row = await cursor.fetchone()
    if row is None:
        raise Fail(f"no intake {intake_id}, or no source {source_id!r}", code="UNKNOWN")
    return {name: requests.get(name, row[name]) for name in FIELDS}, row["url"]


async def _keep(
    conn: psycopg.AsyncConnection[Any], intake_id: UUID, source_id: str, query: Query, listing: Listing
) -> str:
    point = {
        "intake_id": intake_id,
        "source_id": source_id,
        "dedupe_key": listing.dedupe_key,
        **vars(listing),
        "match_strength": match_strength(query, listing.title),
    }
    return await aupsert_if_stronger(
        conn, "coins.price_points", point, key=["intake_id", "source_id", "dedupe_key"], strength="match_strength"
    )


async def _value(conn: psycopg.AsyncConnection[Any], intake_id: UUID) -> None:
    sold = await conn.execute(
        "select price_cents, match_strength from coins.price_points where intake_id = %s and price_type = 'sold'",
        [intake_id],
    )
    if (found := value(await sold.fetchall())) is not None:
        await conn.execute(
            """insert into coins.valuations (intake_id, value_cents, low_cents, high_cents, points)
               values (%s, %s, %s, %s, %s) on conflict (intake_id) do update
               set (value_cents, low_cents, high_cents, points, updated_at) =
                   (excluded.value_cents, excluded.low_cents, excluded.high_cents, excluded.points, now())""",
            [intake_id, found.value_cents, found.low_cents, found.high_cents, found.points],
        )
