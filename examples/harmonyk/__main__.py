"""Four organizations' background work, run by nothing but ticks: python -m harmonyk"""

from __future__ import annotations

import os
import secrets
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import httpx

from harmonyk import app
from harmonyk.jobs import can_retry, get_backoff_delay_ms
from stage import Stage, run, serving

ORGS = [str(UUID(int=0x0190_0000_7000_8000 << 64 | n)) for n in range(1, 5)]
AT_ONCE = 2  # ticks that cron lets overlap
COUNTS = "select status, count(*) from harmonyk.jobs group by status"


def main(stage: Stage) -> None:
    secret = os.environ["INTERNAL_SECRET"] = secrets.token_urlsafe()
    with serving(app.web) as web:
        ids = send_work(stage, web)
        responses = tick_until_done(stage, web, {"x-internal-secret": secret})
    stage.show(
        "Insights: what background work cost",
        "select right(org_id, 4) as org, type, runs, failures, reliability_percent as ok, "
        "run_seconds as run_s, queue_seconds as queue_s from harmonyk.insights",
    )
    stage.show(
        "What took more than one attempt",
        "select right(org_id::text, 4) as org, type, status, attempts, last_error "
        "from harmonyk.jobs where attempts > 1 order by attempts",
    )
    check(stage, ids, responses)


def send_work(stage: Stage, web: httpx.Client) -> set[str]:
    """Send 160 requests, 40 of them repeats."""
    wanted = [
        {"type": "document.index", "orgId": org, "payload": {"document_id": n, "pages": n % 7 + 1}}
        for org in ORGS
        for n in range(28)
    ]
    wanted += [{"type": "calendar.sync", "orgId": org, "payload": {"calendar": f"team-{org[-1]}"}} for org in ORGS]
    wanted += [{"type": "digest.send", "payload": {"to": f"ada{n}@example.org"}} for n in range(4)]
    wanted += wanted[::3]
    app.outages.update({"team-1": 2, "team-2": 99})  # one heals after two attempts, one never does
    ids = {web.post("/api/jobs", json=each).raise_for_status().json()["id"] for each in wanted}
    stage.say(f"{len(wanted)} jobs requested, {len(ids)} accepted; the rest were there already")
    return ids


def tick_until_done(stage: Stage, web: httpx.Client, headers: dict[str, str]) -> list[Any]:
    """Do what cron does, faster: two ticks at a time until nothing is queued."""
    responses: list[Any] = []
    with ThreadPoolExecutor(AT_ONCE) as cron:

        def tick() -> dict[str, int]:
            calls = [cron.submit(web.post, "/api/jobs/tick", headers=headers) for _ in range(AT_ONCE)]
            responses.extend(call.result().json() for call in calls)
            return dict(stage.rows(COUNTS))

        stage.follow(f"{AT_ONCE} ticks at a time", tick, ended={"success", "failed"})
    return responses


def check(stage: Stage, ids: set[str], responses: list[Any]) -> None:
    stage.check('every tick returns {"ok": true}', len(responses), all(each == {"ok": True} for each in responses))
    biggest, used = stage.rows("select max(jobs_claimed), sum(jobs_claimed) from holdfast.worker_tick_metrics")[0]
    stage.check(f"a tick runs at most N = {app.JOBS_PER_TICK}", biggest, biggest <= app.JOBS_PER_TICK)
    counts = dict(stage.rows(COUNTS))
    stage.check("no job lost, none twice", counts, sum(counts.values()) == len(ids))
    stage.check("all but one succeeded", counts.get("success"), counts.get("success") == len(ids) - 1)
    lost = [row.attempts for row in stage.rows("select attempts from harmonyk.jobs where status = 'failed'")]
    stage.check("failed for good after 5 attempts", lost, lost == [5] and not can_retry("failed", 5))
    delays = [get_backoff_delay_ms(n) // 1000 for n in range(9)]
    stage.check("delays by attempts, in s", delays, delays == [1, 1, 2, 4, 8, 16, 32, 60, 60])
    (runs,) = stage.rows("select sum(runs) from harmonyk.insights")[0]
    stage.check("one usage event a run", f"{runs} of {used}", runs == used)


if __name__ == "__main__":
    sys.exit(run("harmonyk", app.hf, main, look_at="usage"))
