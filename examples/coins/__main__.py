"""Four marketplaces, two workers at a time, one of them killed: python -m coins"""

from __future__ import annotations

import sys
import time
from typing import Any

from coins.app import hf, scrape
from coins.document import document_sql
from coins.fake_markets import COINS, Market, four_markets, hand_in, serving
from stage import Stage, Worker, at_work, run

PAUSE = 1.5  # seconds of the breaker, in place of five minutes
SHORT = {
    "JOB_LOCK_TIMEOUT_SECONDS": 3,
    "BREAKER_PAUSE_SECONDS": PAUSE,
    "BASE_DELAY_MINUTES": 0.01,
    "HOLDFAST_UPKEEP": 0.5,
    "HOLDFAST_POLL": 0.5,
    "HOLDFAST_CONCURRENCY": 2,
}
RATES = {"auctions": 300, "dealers": 1200, "archive": 1200, "flaky": 240}
# The same coin, searched with more or fewer words: the results overlap, and fewer words match less surely.
WORDINGS: list[dict[str, Any]] = [{}, {"mintmark": None, "series": None}, {"denomination": None}, {"series": None}]
COUNTS = "select status, count(*) from scrape_jobs group by status"
ENDED = {"succeeded", "failed"}
JOB = "select status, attempts, locked_by from scrape_jobs where id = %s"
SQL = document_sql()


def main(stage: Stage) -> None:
    markets = four_markets()
    with serving(*markets.values()):
        for market in markets.values():
            market.open_in(stage.conn, RATES[market.id])
        # Without the cache, so that every job is one request.
        with at_work(*workers(stage, "worker-1", "worker-2", CACHE_ENABLED="false")) as both:
            share_twenty_jobs(stage, markets["archive"])
            lose_a_worker(stage, markets["archive"], both)
        with at_work(*workers(stage, "worker-3", "worker-4", CACHE_PATH=stage.folder / "cache.sqlite3")):
            search_everywhere(stage, markets)
            look_again(stage, markets)
    sum_up(stage)


def workers(stage: Stage, *names: str, **env: object) -> list[Worker]:
    return [stage.worker(name, WORKER_ID=name, **SHORT, **env) for name in names]


def share_twenty_jobs(stage: Stage, archive: Market) -> None:
    """Check that no job runs on two workers."""
    hand_in(stage.conn, COINS[0])
    stage.conn.execute("update sources set enabled = (id = 'archive')")
    stage.conn.execute(SQL["Create 20 test jobs"].encode())
    stage.follow("20 jobs, two workers", lambda: dict(stage.rows(COUNTS)), ENDED)
    query = "Check that each job was processed exactly once"
    stage.show(query, SQL[query])
    shares = [row.count for row in stage.rows(SQL[query])]
    requests = [each.job_id for each in archive.requests]
    stage.check(
        "20 jobs, two workers: each processed exactly once",
        f"{' + '.join(map(str, shares))} jobs, {len(requests)} requests",
        len(shares) == 2 and sum(shares) == len(requests) == len(set(requests)) == 20,
    )


def lose_a_worker(stage: Stage, archive: Market, both: tuple[Worker, ...]) -> None:
    """Kill the worker that holds a job; the other one notices when the lock has timed out."""
    archive.held.add(COINS[3]["title"])
    job = scrape.enqueue(hand_in(stage.conn, COINS[3]), "archive", {})
    stage.wait_for("a job that runs", lambda: archive.requests[-1].job_id == job.id)
    (before,) = stage.rows(JOB, job.id)
    victim, other = both if before.locked_by.startswith(both[0].name) else reversed(both)
    victim.kill()
    stage.say(f"kill -9 {victim.name}, in the middle of a job")
    stage.follow(f"{other.name} waits for the lock to time out", lambda: dict(stage.rows(COUNTS)), ENDED)
    (after,) = stage.rows(JOB, job.id)
    logged = stage.wait_for("the log", lambda: f"prior_worker={before.locked_by}" in other.log.read_text())
    stage.check(
        "a dead worker's job is reclaimed: attempts + 1, the prior worker logged",
        f"{victim.name} -> {other.name}, attempts {before.attempts} -> {after.attempts}",
        logged and after.status == "succeeded" and (before.attempts, after.attempts) == (1, 2),
    )


def search_everywhere(stage: Stage, markets: dict[str, Market]) -> None:
    """Search four coins at four sources: one limits requests, and one fails until it has been paused twice."""
    intakes = [hand_in(stage.conn, coin) for coin in COINS[1:3]] + intakes_so_far(stage)
    stage.conn.execute("update sources set enabled = true")
    pauses: set[float] = set()  # when each was to end

    def look() -> dict[str, int]:
        paused = stage.rows("select paused_until from sources where paused_until > now()")
        pauses.update(row.paused_until.timestamp() for row in paused)
        markets["flaky"].failing = len(pauses) < 2
        return dict(stage.rows(COUNTS))

    began = time.time()
    scrape.enqueue_many([(coin, source, words) for words in WORDINGS for source in RATES for coin in intakes])
    wrong = scrape.enqueue(intakes[0], "dealers", {"title": "nothing of the kind"})
    stage.follow("64 searches at four sources, and one that must fail", look, ENDED)
    (failed,) = stage.rows(JOB, wrong.id)
    stage.check(
        "a permanent error is failed, without a retry",
        f"{failed.status} after {failed.attempts} attempt",
        (failed.status, failed.attempts) == ("failed", 1),
    )
    check_bucket(stage, markets["auctions"], began)
    check_breaker(stage, markets["flaky"], pauses)


def intakes_so_far(stage: Stage) -> list[Any]:
    return [row.id for row in stage.rows("select id from coin_intakes")]


def check_bucket(stage: Stage, auctions: Market, began: float) -> None:
    """Check that the rate limit held, by the marketplace's record."""
    took = auctions.requests[-1].at - began
    stage.check(
        f"a token bucket per source: {RATES['auctions']} a minute, 5 at once",
        f"{auctions.count()} requests in {took:.1f} s, {auctions.count(429)} x 429",
        auctions.count(429) == 0 and took > 60 * (auctions.count() - 5) / RATES["auctions"],
    )


def check_breaker(stage: Stage, flaky: Market, pauses: set[float]) -> None:
    early = [each for each in flaky.requests for until in pauses if until - PAUSE / 2 < each.at < until]
    (source,) = stage.rows("select failure_streak, paused_until from sources where id = 'flaky'")
    stage.check(
        "5 failures pause a source; then a probe tries, and its success closes the breaker",
        f"{flaky.count(503)} x 503, {len(pauses)} pauses with {len(early)} requests in them",
        bool(pauses) and not early and source == (0, None),
    )


def look_again(stage: Stage, markets: dict[str, Market]) -> None:
    """Repeat recent searches, which must come from the cache."""
    before = sum(market.count() for market in markets.values())
    again = scrape.enqueue_many([(coin, source, {}) for source in RATES for coin in intakes_so_far(stage)]).ids
    stage.follow("16 searches once more", lambda: dict(stage.rows(COUNTS)), ENDED)
    requests = sum(market.count() for market in markets.values()) - before
    hits = len(stage.rows("select 1 from scrape_jobs where id = any(%s::uuid[]) and (result -> 'cached')::bool", again))
    measured = f"{hits} of 16 from the cache, {requests} requests"
    stage.check("a response is used again for CACHE_TTL_SECONDS", measured, (hits, requests) == (16, 0))


def sum_up(stage: Stage) -> None:
    """Show the monitoring queries and the values of the coins, and check that no price is there twice."""
    for name in ("Source status", "Jobs with no recent heartbeat"):
        stage.show(name, SQL[name])
    stage.show("Valuations", "select * from valued_coins")
    valued = {row.title for row in stage.rows("select title from valued_coins")}
    stage.check("one valuation per intake", f"{len(valued)} of 4", len(valued) == 4)
    double = stage.rows(SQL["Verify no duplicate price_points for same intake/source/dedupe_key"])
    (kept,) = stage.rows(
        "select sum((result ->> 'inserted')::int) as new, sum((result ->> 'updated')::int) as stronger, "
        "sum((result ->> 'kept')::int) as weaker from scrape_jobs"
    )
    stage.check(
        "price points: no duplicates; a stronger match updates, others change nothing",
        f"{len(double)} duplicates; {kept.new} new, {kept.stronger} stronger, {kept.weaker} weaker",
        not double and all(kept),
    )


if __name__ == "__main__":
    sys.exit(run("coins", hf, main, look_at="limits --prefix source:"))
