"""The trials HS1, HS2, HS3, FAIR1, FAIR2, and four workers under load: each plays, shows and checks its promises."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from outreach.app import MAX_JOBS_PER_TENANT_PER_TICK, MAX_JOBS_PER_TICK, enqueue, hf
from outreach.fake_provider import Provider
from stage import Stage, Worker

SLOTS = 4  # messages that a worker sends at once
SIX = [f"tenant-{n}" for n in range(1, 7)]
DUPLICATES = """
SELECT idempotency_key, COUNT(*)
FROM channel_outbox
GROUP BY idempotency_key
HAVING COUNT(*) > 1;
"""
STUCK = "SELECT id FROM job_queue WHERE status = 'locked' AND locked_at < now() - interval '5 minutes'"
BARS = " ▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[int]) -> str:
    return "".join(BARS[-(-each * 8 // max(values))] for each in values)


class Trials:
    def __init__(self, stage: Stage, provider: Provider, lock_timeout: float) -> None:
        self.stage, self.provider, self.lock_timeout = stage, provider, lock_timeout
        self.env = {
            "PROVIDER_URL": provider.url,
            "LOCK_TIMEOUT": lock_timeout,
            "HOLDFAST_CONCURRENCY": SLOTS,
            "HOLDFAST_UPKEEP": 0.5,
            "HOLDFAST_WINDOW": 1,
        }
        stage.conn.execute("set search_path = outreach, holdfast")

    def workers(self, *names: str) -> list[Worker]:
        """Start more workers; scaling up takes nothing else."""
        return [self.stage.worker(name, **self.env) for name in names]

    def value(self, query: str, *values: object) -> Any:
        return self.stage.rows(query, *values)[0][0]

    def unsent(self) -> int:
        """Return the number of jobs and messages that have not ended."""
        return int(self.value("select coalesce(sum(ready + running + later), 0) from queue_depth"))

    def drain(self) -> None:
        self.stage.wait_for("an empty queue", lambda: self.unsent() == 0)

    def once_each(self, name: str, campaign: str, jobs: int) -> None:
        """Check that every job of a campaign had its effect once: in the table, in the outbox and at the provider."""
        check, provider = self.stage.check, self.provider
        rows = self.value("select count(*) from touches where campaign = %s", campaign)
        check(f"{name}: each job's row is there once", f"{rows} of {jobs}", rows == jobs)
        twice = self.stage.rows(DUPLICATES)
        check(f"{name}: an idempotency key is in channel_outbox once", f"{len(twice)} twice", not twice)
        there = provider.count(campaign)
        check(f"{name}: each message arrived", f"{there} of {jobs}", there == jobs)
        check(f"{name}: none was sent twice", provider.refused, provider.refused == 0)

    def hs1(self, each: int = 20) -> None:
        self.stage.say("[bold]HS1[/] two workers claim in the same moment")
        self.provider.delay = 0.05
        jobs = enqueue("hs1", dict.fromkeys(SIX, each))
        self.drain()
        done = self.stage.rows(
            "select locked_by, count(*) as jobs, max(attempts) as attempts from job_queue "
            "where payload ->> 'campaign' = 'hs1' and status = 'completed' group by 1 order by 1"
        )
        for row in done:
            self.stage.say(f"  {row.locked_by}: {row.jobs} jobs")
        self.stage.check("HS1: both workers took jobs", " + ".join(str(row.jobs) for row in done), len(done) == 2)
        most = max(row.attempts for row in done)
        self.stage.check("HS1: each ran at the first attempt", most, most == 1)
        self.once_each("HS1", "hs1", jobs)

    def hs2(self, victim: Worker, each: int = 10) -> None:
        """Kill a worker whose messages have been sent while the provider has not responded yet."""
        self.stage.say("[bold]HS2[/] kill -9 of a worker that has messages on their way")
        pid, provider = victim.process.pid, self.provider
        name = self.value("select id from workers where pid = %s order by started_at desc limit 1", pid)
        provider.delay = 0.4
        jobs = enqueue("hs2", dict.fromkeys(SIX, each))
        self.stage.wait_for("messages of the victim", partial(provider.is_busy, pid, 3))
        victim.kill()
        killed, in_doubt = time.monotonic(), provider.open_of(pid)
        locked = self.value("select count(*) from jobs where status = 'running' and locked_by = %s", name)
        self.stage.say(f"  killed {name}: {locked} locked, {in_doubt} sent, unanswered")
        self.drain()
        lookups = [at for at in provider.lookups if at > killed]
        back = min(lookups, default=killed)
        others = sum(killed < receipt.began < back for receipt in list(provider.receipts.values()))
        self.stage.check("HS2: other workers continue", f"{others} sent meanwhile", others > 0)
        text = f"{locked} taken back, after {back - killed:.1f} s"
        self.stage.check("HS2: the dead worker's locks run out", text, bool(lookups))
        self.stage.check("HS2: looked up before sending again", f"{len(lookups)} times", len(lookups) >= in_doubt > 0)
        self.once_each("HS2", "hs2", jobs)

    def load(self, each: int = 30, seconds: float = 3) -> None:
        """Load for the exit criteria: a flood of one tenant beside eleven others, and jobs that go on arriving."""
        self.stage.say("[bold]Load[/] four workers: a flood, eleven other tenants, more all the time")
        self.provider.delay = 0.1
        began, depths, late = time.monotonic(), list[int](), 0
        enqueue("load", {"flood": 4 * each} | {f"tenant-{n}": each for n in range(1, 12)})
        while depth := self.unsent():
            depths.append(depth)
            late += self.value("select count(*) from stuck_jobs")
            if time.monotonic() - began < seconds:
                enqueue(f"more-{len(depths)}", {"flood": 2, f"tenant-{len(depths) % 11 + 1}": 3})
            time.sleep(0.2)
        shares = self.shares(8 * each)
        self.stage.say(f"  queue depth {sparkline(depths)} {depths[0]} to 0")
        self.stage.say(f"  first {8 * each}   {sparkline(shares)} jobs of each of {len(shares)} tenants")
        self.exit_criteria(depths, late, shares)

    def shares(self, first: int) -> list[int]:
        """Return each tenant's part of the first jobs of the load, while all had work."""
        rows = self.stage.rows(
            "select count(*) from (select tenant from jobs where payload ->> 'campaign' = 'load' "
            "order by started_at, id limit %s) started group by tenant order by 1 desc",
            first,
        )
        return [row.count for row in rows]

    def exit_criteria(self, depths: list[int], late: int, shares: list[int]) -> None:
        check, again = self.stage.check, self.provider.refused
        twice, stuck = len(self.stage.rows(DUPLICATES)), len(self.stage.rows(STUCK))
        check("Load: no duplicate outbox entries", f"{twice}; sent twice: {again}", twice == again == 0)
        text = f"{stuck}; {late} past the {self.lock_timeout:g} s of this run"
        check("Load: no stuck jobs (locked > 5 min)", text, stuck == late == 0)
        text = f"{depths[0]} at first, {max(depths)} at most, then 0"
        check("Load: queue depth stays bounded", text, max(depths) <= depths[0] * 1.1)
        seconds = float(self.value("select avg(tick_duration_ms) from worker_tick_metrics")) / 1000
        check("Load: tick duration < 30 s average", f"{seconds:.1f} s", seconds < 30)
        jain = sum(shares) ** 2 / (12 * sum(each**2 for each in shares))
        text = f"{min(shares)} to {max(shares)} of the first {sum(shares)}; Jain's index {jain:.3f}"
        check("Load: all tenants get a fair share", text, jain > 0.9)

    def hs3(self, workers: Sequence[Worker], delay: float = 1.2) -> None:
        """Measure throughput of 4, 2 and 1 workers that wait for the provider. A response takes 1.2 s: 50 jobs a minute
        for each slot of a worker."""
        self.stage.say(f"[bold]HS3[/] throughput: {delay:g} s for each message, {SLOTS} at once in each worker")
        rates = {}
        for size in (4, 2, 1):
            self.stop(*workers[size:])
            rates[size] = self.rate(workers[:size], delay)
        for size, rate in sorted(rates.items()):
            bar = "█" * round(rate / max(rates.values()) * 48)
            self.stage.say(f"  {size} worker{'s' if size > 1 else ' '} {bar} {rate * 60:,.0f} a minute")
        two, four = (rates[size] / rates[1] for size in (2, 4))
        self.stage.check("HS3: 1 worker", f"{rates[1] * 60:,.0f} a minute", rates[1] > 0)
        self.stage.check("HS3: 2 workers: at least 1.9 times that", f"{two:.2f} times", two >= 1.9)
        self.stage.check("HS3: 4 workers: at least 3.6 times that", f"{four:.2f} times", four >= 3.6)

    def stop(self, *workers: Worker) -> None:
        """Scale down: workers finish the jobs they have begun."""
        for each in workers:
            each.process.terminate()
        for each in workers:
            each.process.wait(30)

    def rate(self, workers: Sequence[Worker], delay: float) -> float:
        """Return messages a second, from when all slots have one. Take the best of up to four windows, since other load
        on the machine can only lower it; stop once it is near the most that the slots can do."""
        self.provider.delay = delay
        slots = len(workers) * SLOTS
        enqueue(f"hs3-{len(workers)}", dict.fromkeys(SIX, slots))
        for each in workers:
            self.stage.wait_for("every slot at work", partial(self.provider.is_busy, each.process.pid, SLOTS))
        best = 0.0
        for _ in range(4):
            began = time.monotonic()
            time.sleep(delay)
            best = max(best, self.provider.rate(began, began + delay))
            if best > 0.95 * slots / delay:
                break
        self.provider.delay = 0.01  # for what the workers have claimed beyond that
        self.cancel()
        return best

    def cancel(self) -> None:
        """Cancel the jobs that have not begun."""
        hf.jobs.cancel(*(str(row.id) for row in self.stage.rows("select id from jobs where status = 'queued'")))
        self.drain()

    def fair1(self, tick: Callable[[], object], ticks: int = 3) -> None:
        """Check that jobs over a tenant's share wait, without a loss of attempts."""
        self.stage.say("[bold]FAIR1[/] one tenant has 1,000 jobs beside seven with 10, then alone")
        self.provider.delay = 0.01
        enqueue("fair1", {"flood": 1000} | {f"tenant-{n}": 10 for n in range(1, 8)})
        reports = [self.tick(tick) for _ in range(ticks)]
        most = max(max(row.tenant_jobs.values()) for row in reports)
        self.stage.check("FAIR1: 1,000 queued, at most 25 a tick", most, most == MAX_JOBS_PER_TENANT_PER_TICK)
        throttled = [row.jobs_throttled for row in reports]
        self.stage.check("FAIR1: jobs_throttled says so", throttled, all(throttled))
        (waits,) = self.stage.rows(
            "select count(*) filter (where attempts > 0) as burnt, "
            "count(*) filter (where scheduled_for <= now()) as due from job_queue where status = 'queued'"
        )
        kept = waits.due > 0 and not waits.burnt
        self.stage.check(
            "FAIR1: what waits lost no attempt, nor its turn", f"{waits.due} wait, {waits.burnt} burnt", kept
        )

    def fair2(self, tick: Callable[[], object], ticks: int = 3) -> None:
        self.stage.say(f"[bold]FAIR2[/] forty tenants, the flood among them, in ticks of {MAX_JOBS_PER_TICK}")
        enqueue("fair2", {f"tenant-{n}": 5 * ticks for n in range(1, 40)})
        reports = [self.tick(tick) for _ in range(ticks)]
        fewest = min(len(row.tenant_jobs) for row in reports)
        self.stage.check("FAIR2: 40 tenants, all advance in every tick", f"{fewest} of 40", fewest == 40)
        largest = max(row.jobs_claimed for row in reports)
        self.stage.check("FAIR2: a tick takes at most 200", largest, largest == MAX_JOBS_PER_TICK)

    def tick(self, tick: Callable[[], object]) -> Any:
        """Return what a tick took of each tenant, and how many tenants it throttled. Then tick for messages."""
        began = self.value("select clock_timestamp()")
        tick()
        (row,) = self.stage.rows(
            "select tenant_jobs, jobs_claimed, jobs_throttled from worker_tick_metrics "
            "where tick_started_at > %s order by tick_started_at limit 1",
            began,
        )
        flood = row.tenant_jobs.get("flood", 0)
        others = [jobs for tenant, jobs in row.tenant_jobs.items() if tenant != "flood"]
        text = f"flood {flood}, others {max(others, default=0)}; throttled {row.jobs_throttled}"
        self.stage.say(f"  {row.jobs_claimed:>3} jobs {sparkline([flood, *others])} {text}")
        return row
