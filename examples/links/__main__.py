"""5,000 bookmarks go in through the API, two workers enrich them once each: python -m links"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import httpx

from links.api import api
from links.app import K, N, hf
from links.fake_bookmarks import make
from links.fake_web import SITES, FakeWeb
from stage import Stage, at_work, run, serving

LINKS = int(os.environ.get("BOOKMARKS", "5000"))
SHORT = {
    "LINKS_BACKOFF": 1,
    "LINKS_LOCK_TTL": 20,
    "LINKS_FETCH_TIMEOUT": 5,
    "LINKS_ALLOW_PRIVATE": "yes",
    "HOLDFAST_WINDOW": 2,
    "HOLDFAST_LOG_FORMAT": "json",
}
FIELDS = {"batch_claimed_count", "success_count", "fail_count", "top_failure_keys", "job_duration_ms"}
ANN, BORA = {"X-User-Id": "ann"}, {"X-User-Id": "bora"}


def main(stage: Stage) -> None:
    with FakeWeb() as outside, serving(api) as client:
        names = ("worker-1", "worker-2")
        with at_work(*(stage.worker(name, HOLDFAST_SENTRY_DSN=outside.sentry_dsn, **SHORT) for name in names)) as both:
            began = time.monotonic()
            cut = cancel_an_import(stage, client, outside)
            whole = import_all(stage, client, outside)
            stage.say(f"{outside.requests.total():,} requests in {time.monotonic() - began:.1f} s")
        lines = [json.loads(line) for worker in both for line in worker.log.read_text().splitlines()]
    show(stage, outside)
    check_imports(stage, whole, cut)
    check_fetching(stage, outside)
    check_deaths(stage, outside)
    check_telemetry(stage, outside.events, lines)


def cancel_an_import(stage: Stage, client: httpx.Client, outside: FakeWeb) -> str:
    """Cancel Bora's import when the first of 2,000 bookmarks have been placed."""
    key: str = client.post("/imports", content=make(2000, outside.port, seed=8, name="b"), headers=BORA).json()["id"]
    url = f"/imports/{key}"
    stage.wait_for("Bora's import to begin", lambda: client.get(url, headers=BORA).json()["processed_items"])
    client.post(f"{url}/cancel", headers=BORA).raise_for_status()
    stage.say("2,000 bookmarks of Bora: canceled on the way")
    return key


def import_all(stage: Stage, client: httpx.Client, outside: FakeWeb) -> str:
    """Import Ann's bookmarks and enrich all new links, to the end."""
    key: str = client.post("/imports", content=make(LINKS, outside.port), headers=ANN).json()["id"]

    def look() -> dict[str, int]:
        at = client.get(f"/imports/{key}", headers=ANN).json()
        links = stage.rows("select status, count(*) from enrichment_jobs group by status")
        left = at["total_items"] - at["processed_items"]
        return {"import under way": int(not at["finished_at"]), "bookmarks to place": left, **dict(links)}

    stage.follow(f"{LINKS:,} bookmarks of Ann", look, ended={"succeeded", "dead"})
    return key


def show(stage: Stage, outside: FakeWeb) -> None:
    sites = [list(SITES), list(SITES.values()), [outside.most[host] for host in SITES]]
    stage.show(
        "Domains",
        "select * from domains join unnest(%s::text[], %s::text[], %s::int[])"
        " as web (domain, site, most_at_once) using (domain)",
        *sites,
    )
    stage.show("Why links are dead", "select * from dead_links")
    stage.show("Block candidates", "select domain, count, split_part(reason, ':', 1) as reason from block_candidates")


def check_imports(stage: Stage, whole: str, cut: str) -> None:
    query = "select status, processed_items, total_items, failed_items from import_jobs where id = %s"
    (ann,), (bora,) = stage.rows(query, whole), stage.rows(query, cut)
    every = ann == ("succeeded", ann.total_items, ann.total_items, 3)
    stage.check("the import counts every bookmark", tuple(ann), every)
    stopped = bora.status == "canceled" and bora.processed_items < bora.total_items
    stage.check("a canceled import stops", tuple(bora), stopped)
    (jobs,) = stage.rows("select count(*), count(distinct link_canonical_id) as links from enrichment_jobs")
    (links,) = stage.rows("select count(*) from canonical_links")
    one_each = jobs.count == jobs.links == links.count
    stage.check("UNIQUE: one job for each canonical link", f"{jobs.count} for {links.count}", one_each)
    left = stage.rows("select 1 from enrichment_jobs where status not in ('succeeded', 'dead')")
    stage.check("nothing is lost or stuck", f"{len(left)} left", not left)


def check_fetching(stage: Stage, outside: FakeWeb) -> None:
    pages = outside.enriched()
    twice = sum(n > 1 for n in pages.values())
    stage.check("enriched once: no page fetched again", f"{len(pages)} once, {twice} twice", twice == 0)
    most = max(outside.most[host] for host in SITES)
    stage.check(f"k = {K} at once of a domain, over both workers", most, most <= K)
    forbidden = sum(path.startswith("/private") for _, path in outside.requests)
    stage.check("robots.txt is honored", f"{forbidden} forbidden pages requested", forbidden == 0)
    stored = stage.rows("select 1 from canonical_links link where to_jsonb(link)::text ~ 'recipe'")
    stage.check("no full text is stored", f"{len(stored)} rows with text", not stored)


def check_deaths(stage: Stage, outside: FakeWeb) -> None:
    attempts = {row.error: (row.least_attempts, row.most_attempts) for row in stage.rows("select * from dead_links")}
    failed = attempts.get("HTTP_500")
    stage.check("max_attempts 2: dead after the second", failed, failed == (2, 2))
    refused = {code: attempts.get(code) for code in ("HTTP_403", "ROBOTS", "CAPTCHA")}
    stage.check("403, robots, captcha: dead after the first", refused, set(refused.values()) == {(1, 1)})
    blocks = {block.key for block in hf.dead.blocks()}
    stage.check("... and block candidates", len(blocks), blocks >= {"127.0.0.23", "127.0.0.24", "127.0.0.25"})


def check_telemetry(stage: Stage, events: list[dict[str, Any]], lines: list[dict[str, Any]]) -> None:
    windows = [line for line in lines if line["event"] == "window"]
    most = max(line["running"] for line in windows)
    stage.check(f"N = {N} jobs at once in a worker", most, most <= N)
    stage.check("log fields", f"{len(windows)} windows", {name for line in lines for name in line} >= FIELDS)
    ends = ["job dead" in json.dumps(event.get("breadcrumbs")) for event in events if event["level"] == "error"]
    stage.check("Sentry: a breadcrumb when a job goes dead", f"{sum(ends)} of {len(ends)}", all(ends) and bool(ends))
    texts = [*events, *lines, *(block.reason for block in hf.dead.blocks())]
    leaks = sum("s3cr3t" in json.dumps(each) for each in texts)
    stage.check("no URL query in Sentry, logs, reasons of blocks", f"{leaks} in {len(texts)} of them", leaks == 0)


if __name__ == "__main__":
    sys.exit(run("links", hf, main, look_at="dead blocks"))
