"""Limits in a worker: it registers what its tasks declare, and reports which keys a failure counts for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Breaker, Dead, Holdfast, Limit, Retry, Status
from holdfast.client.database import Database
from holdfast.model.outcome import Outcome
from holdfast.settings import Settings
from holdfast.testing import Kit
from tests.support.running import ended, working
from tests.support.workers import APPS

sys.path.append(str(APPS))
import crunch

Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Callable[[Holdfast], dict[str, Outcome]]:
    """The outcomes that a worker of this application sends, by job."""

    def listen(hf: Holdfast) -> dict[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        finish = hf.database.calls.jobs.finish

        def record_outcomes(ids: Any, tokens: Any, given: Any, closed: Any, *, locked: str) -> Any:
            outcomes.update({each.id: each for each in given})
            return finish(ids, tokens, given, closed, locked=locked)

        monkeypatch.setattr(hf.database.calls.jobs, "finish", record_outcomes)
        return outcomes

    return listen


async def test_a_worker_registers_the_limits_of_its_tasks_once(hf: Holdfast, sql: Sql) -> None:
    @hf.task(limits=[Limit("domain:{domain}", concurrency=2), Limit("net", rate=60)])
    async def crawl(domain: str) -> None: ...

    @hf.task(limits=[Limit("domain:{host}", concurrency=2)])
    async def look(host: str) -> None: ...

    async with working(hf, queues="default"):
        assert (await ended(hf, (await crawl.aenqueue("a")).id)).status is Status.SUCCEEDED
    rules = sql("select template, pattern, code, updated_at from limit_rules order by template")
    assert [row[:3] for row in rules] == [
        ("domain:{domain}", "domain:%", {"concurrency": 2}),
        ("net", "net", {"rate": 60, "per": 60, "burst": 1}),
    ]
    async with working(hf, queues="default"):
        await ended(hf, (await look.aenqueue("a")).id)
    assert sql("select template, pattern, code, updated_at from limit_rules order by template") == rules


async def test_a_worker_without_limits_registers_none(hf: Holdfast, sql: Sql) -> None:
    @hf.task()
    async def plain() -> None: ...

    async with working(hf, queues="default"):
        await ended(hf, (await plain.aenqueue()).id)
    assert sql("select count(*) from limit_rules") == [(0,)]


async def test_the_worker_that_starts_last_wins(hf: Holdfast, dsn: str, sql: Sql) -> None:
    async def handler() -> None: ...

    async with Newer(dsn) as newer:
        hf.task(name="t", limits=[Limit("net", concurrency=2)])(handler)
        newer.task(name="t", limits=[Limit("net", concurrency=3)])(handler)
        for app, number in ((hf, 2), (newer, 3), (hf, 2)):
            async with working(app, queues="default"):
                await ended(app, (await app.registry.tasks["t"].aenqueue()).id)
            assert sql("select code from limit_rules") == [({"concurrency": number},)]


class Newer(Holdfast):
    """Another application on the same database."""

    async def __aenter__(self) -> Newer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def test_an_outcome_says_which_keys_it_counts_for(hf: Holdfast, sent: Any) -> None:
    limits = [Limit("domain:{domain}", breaker=Breaker(on=[ConnectionError, "CAPTCHA"])), Limit("net", concurrency=9)]

    @hf.task(name="crawl", retry=Retry.none(), limits=limits)
    async def crawl(domain: str, error: str) -> None:
        raise {"reset": ConnectionResetError(), "bug": KeyError(), "captcha": Dead("no", code="CAPTCHA")}[error]

    outcomes = sent(hf)
    async with working(hf, queues="default"):
        jobs = {name: (await crawl.aenqueue("a", name)).id for name in ("reset", "bug", "captcha")}
        for id_ in jobs.values():
            await ended(hf, id_)
    whole = ["net", "queue:default", "task:crawl"]
    assert {name: outcomes[id_].counts for name, id_ in jobs.items()} == {
        "reset": ["domain:a", *whole],
        "bug": whole,
        "captcha": ["domain:a", *whole],
    }


async def test_nothing_is_counted_that_no_task_chooses(hf: Holdfast, sent: Any) -> None:
    @hf.task(retry=Retry.none(), limits=[Limit("domain:{domain}", breaker=Breaker())])
    async def crawl(domain: str) -> None:
        raise KeyError

    outcomes = sent(hf)
    async with working(hf, queues="default"):
        job = await crawl.aenqueue("a")
        await ended(hf, job.id)
    assert outcomes[job.id].counts is None


async def test_an_attempt_in_a_process_says_so_too(dsn: str, sent: Any) -> None:
    crunch.hf.database = Database(Settings.load(dsn=dsn))
    outcomes = sent(crunch.hf)
    async with working(crunch.hf):
        jobs = [(await crunch.fetch.aenqueue("a", name)).id for name in ("blocked", "lookup", "exit")]
        for id_ in jobs:
            await ended(crunch.hf, id_)
    whole = ["queue:default", "task:crunch.fetch"]
    assert [outcomes[id_].counts for id_ in jobs] == [["domain:a", *whole], whole, ["domain:a", *whole]]
    crunch.hf.close()


def test_the_kit_runs_jobs_under_limits(kit: Kit) -> None:
    @kit.hf.task(name="crawl", limits=[Limit("domain:{domain}:{tenant}", concurrency=1, rate=1000, per=1)])
    async def crawl(domain: str) -> str:
        return domain

    crawl.using(tenant="acme").enqueue_many(["a", "a", "b"])
    with kit.inline():
        crawl.enqueue("c")
    crawl.enqueue("d")
    assert [attempt.result for attempt in kit.drain()] == ["d"]
    kit.assert_enqueued(crawl.using(tenant="acme"), "a", count=2)
    assert {job.status for job in kit.all_enqueued()} == {Status.SUCCEEDED}
