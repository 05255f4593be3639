"""The trials, one after the other, with workers that are started and killed: python -m outreach"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from outreach import fake_provider
from outreach.app import TICKS, hf
from outreach.trials import Trials
from stage import Stage, TickService, at_work, run

LOCK_TIMEOUT = 3.0  # seconds, in place of five minutes


def main(stage: Stage) -> None:
    with fake_provider.running() as provider:
        trials = Trials(stage, provider, LOCK_TIMEOUT)
        with at_work(*trials.workers("worker-1", "worker-2")) as both:
            trials.hs1()
            trials.hs2(both[0])
        with at_work(*trials.workers("worker-3", "worker-4", "worker-5", "worker-6")) as four:
            trials.load()
            trials.hs3(four)
        with ticking(trials) as tick:
            trials.fair1(tick)
            trials.fair2(tick)
        show_metrics(stage)
        trials.cancel()


@contextmanager
def ticking(trials: Trials) -> Iterator[Callable[[], object]]:
    """Yield a function that calls a tick service as cron would."""
    secret = secrets.token_urlsafe()
    env = trials.env | {"HOLDFAST_DSN": hf.database.url, "HOLDFAST_TICK_SECRETS": secret}
    with (
        at_work(TickService("outreach.app:hf", trials.stage.folder, "ticks", **env)) as (service,),
        httpx.Client(base_url=service.url, headers={"x-internal-secret": secret}, timeout=60) as http,
    ):
        yield lambda: [http.post("/tick", json=each).raise_for_status() for each in TICKS]


def show_metrics(stage: Stage) -> None:
    stage.show(
        "worker_tick_metrics, the last row",
        "select name, case name when 'tenant_jobs' then left(value, 40) || ' ...' else value end as value "
        "from (select * from worker_tick_metrics where kind = 'tick' order by tick_ended_at desc limit 1) tick, "
        "jsonb_each_text(to_jsonb(tick)) as columns (name, value)",
    )
    stage.show(
        "worker_health_summary",
        "select right(worker_id, 8) as worker, tick_count as ticks, avg_tick_duration_ms as ms, "
        "total_jobs_claimed as claimed, total_jobs_succeeded as succeeded, total_lock_contentions as contended, "
        "last_tick_at as last from worker_health_summary order by tick_count desc limit 6",
    )
    stage.show(
        "health_levels: a tick of 200, and FAIR1's 1,000 jobs, are critical",
        "select metric, round(value::numeric, 1) as value, level from health_levels",
    )


if __name__ == "__main__":
    sys.exit(run("outreach", hf, main, look_at="outbox"))
