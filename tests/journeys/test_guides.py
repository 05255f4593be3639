"""The programs of the guides run as they are written, and do what the text around them says.

A program is a python block below a line `<!-- run: NAME -->`; those above it on the page run first. The check of that
name here runs afterwards, while a worker runs.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast import Event, Holdfast, InvalidPayload, Status
from holdfast.effects.signature import sign
from tests.support import pages
from tests.support.running import ended, until, waiting, working

GUIDES = Path(__file__).parent.parent.parent / "docs/guides"
PAGES = (
    "tasks.md",
    "batches.md",
    "steps.md",
    "limits.md",
    "outbox.md",
    "webhooks.md",
    "sinks.md",
    "observe.md",
    "actions.md",
    "schedules.md",
)
QUEUES = "default,mail,outbox,orders"
Sql = Callable[..., list[tuple[Any, ...]]]
TABLE = re.search(r"(create table price_points .*?);", (GUIDES / "sinks.md").read_text(), re.S)[1]  # type: ignore[index]


def programs(page: str) -> list[tuple[str, str]]:
    """Return the page's programs by name, in their order."""
    return pages.programs(GUIDES / page)


@dataclass
class Guide:
    """A page whose programs have been run."""

    names: dict[str, Any]
    sql: Sql
    output: str = ""

    @property
    def hf(self) -> Holdfast:
        hf: Holdfast = self.names["hf"]
        return hf

    def __getattr__(self, name: str) -> Any:
        return self.names[name]


Check = Callable[[Guide], Awaitable[None]]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


NAMED = [(page, name) for page in PAGES for name, _ in programs(page)]


def test_every_python_block_is_run_and_every_program_is_checked() -> None:
    for page in PAGES:
        assert (GUIDES / page).read_text().count("```python") == len(programs(page)), page
    assert sorted(CHECKS) == sorted(name for _, name in NAMED)


@pytest.fixture
def ledger(sql: Sql) -> Iterator[None]:
    sql("create table public.ledger (order_id integer, amount integer)")
    sql(f"set search_path = public; {TABLE}; set search_path = holdfast")
    yield
    sql("drop table public.ledger, public.price_points")


@pytest.mark.parametrize(("page", "name"), NAMED)
async def test_a_program_of_the_guide_does_what_it_says(
    page: str,
    name: str,
    dsn: str,
    sql: Sql,
    ledger: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOLDFAST_DSN", dsn)
    monkeypatch.setenv("DATABASE_URL", dsn)
    guide = Guide({"__name__": "guide"}, sql)
    stop = [each for each, _ in programs(page)].index(name) + 1
    first, *others = programs(page)[:stop]
    run(page, *first, guide)
    try:
        async with working(guide.hf, queues=QUEUES):  # some wait for their jobs
            await until(lambda: sql("select 1 from workers"))
            for other in others:
                await asyncio.to_thread(run, page, *other, guide)
        guide.output = capsys.readouterr().out
        async with working(guide.hf, queues=QUEUES):  # with the resources that they have registered
            await CHECKS[name](guide)
    finally:
        await guide.hf.aclose()


def run(page: str, name: str, code: str, guide: Guide) -> None:
    exec(compile(code, f"{page}, {name}", "exec", dont_inherit=True), guide.names)  # noqa: S102 - our own guide


# -- tasks.md


@check
async def task(guide: Guide) -> None:
    info = await ended(guide.hf, (await guide.send.aenqueue("a@b.c")).id)
    assert (info.status, info.task, info.queue, info.priority) == (Status.SUCCEEDED, "guide.send", "mail", 1)


@check
async def objects(guide: Guide) -> None:
    lines = [guide.Line(sku="a", count=1), guide.Line(sku="b", count=2)]
    with pytest.raises(InvalidPayload, match="greater than 0"):
        await guide.price.aenqueue([{"sku": "a", "count": 0}])
    assert await (await guide.price.aenqueue(lines)).aresult(40) == lines[1]


@check
async def runner(guide: Guide) -> None:
    """Skip the run, which is in tests/worker/test_process.py: a child cannot import a program of a page."""
    assert (guide.draw.runner, guide.draw.timeout) == ("process", 600)


@check
async def errors(guide: Guide) -> None:
    retried = await waiting(guide.hf, (await guide.fetch.aenqueue(503)).id)
    assert retried.status is Status.RETRYING
    for code, status in ((403, Status.DEAD), (404, Status.FAILED)):
        info = await ended(guide.hf, (await guide.fetch.aenqueue(code)).id)
        assert (info.status, info.attempts) == (status, 1)


@check
async def classify(guide: Guide) -> None:
    info = await ended(guide.hf, (await guide.evaluate.aenqueue("s-1")).id)
    assert info.status is Status.FAILED and info.last_error and info.last_error["code"] == "SNAPSHOT_NOT_READY"


@check
async def block(guide: Guide) -> None:
    info = await ended(guide.hf, (await guide.crawl.aenqueue("shop.example")).id)
    assert info.status is Status.DEAD
    assert [(b.key, b.reason) for b in guide.hf.dead.blocks()] == [("shop.example", "ROBOTS: robots.txt forbids it")]
    assert guide.hf.dead.clear_blocks("shop.example") == ["shop.example"]


@check
async def cancel(guide: Guide) -> None:
    assert await (await guide.render.aenqueue(2)).aresult(40) == 2
    job = await guide.render.aenqueue(1_000_000)

    async def running() -> bool:
        info = await guide.hf.jobs.aget(job.id)
        return info is not None and info.status is Status.RUNNING

    await until(running)
    assert await guide.hf.jobs.acancel(job.id) == {job.id: "canceling"}
    assert (await ended(guide.hf, job.id)).status is Status.CANCELED


@check
async def deadline(guide: Guide) -> None:
    assert (await ended(guide.hf, guide.code.id)).status is Status.SUCCEEDED
    late = await guide.send.using(delay=60, deadline=300).aenqueue("a@b.c")
    guide.sql("update later set deadline = now() where id = %s", [late.id])
    info = await ended(guide.hf, late.id)
    assert info.status is Status.CANCELED and info.last_error and info.last_error["code"] == "DEADLINE_EXPIRED"


@check
async def progress(guide: Guide) -> None:
    job = await guide.read.aenqueue(3)
    assert await job.aresult(40) == {"rows": 3}
    info = await guide.hf.jobs.aget(job.id)
    assert info is not None and info.progress
    assert (info.progress["done"], info.progress["total"], info.progress["message"]) == (3, 3, "row 3")


@check
async def failed(guide: Guide) -> None:
    job = await guide.load.aenqueue("a.csv")
    failures = await until(lambda: guide.hf.jobs.afailures(job.id))
    assert (failures[0].type, failures[0].message) == ("ValueError", "a.csv: line 7 is not a number")
    (log,) = await guide.hf.jobs.alog(job.id)
    assert [line.text for line in log.lines] == ["reading a.csv"]


@check
async def resources(guide: Guide) -> None:
    assert await (await guide.count.aenqueue("batches")).aresult(40) == 1


@check
async def middleware(guide: Guide) -> None:
    before = guide.trace.set("t-1")
    try:
        assert await (await guide.traced.aenqueue()).aresult(40) == "t-1"
    finally:
        guide.trace.reset(before)


@check
async def transaction(guide: Guide) -> None:
    await (await guide.book.aenqueue(42, 100)).aresult(40)
    assert guide.sql("select * from public.ledger") == [(42, 100)]


@check
async def dedupe(guide: Guide) -> None:
    first, second = await guide.enrich.aenqueue("l-1"), await guide.enrich.aenqueue("l-1")
    assert first.id == second.id and second.existing


@check
async def limits(guide: Guide) -> None:
    job = await guide.visit.using(tenant="acme").aenqueue("shop.example")
    assert (await ended(guide.hf, job.id)).status is Status.SUCCEEDED
    later = await guide.visit.using(delay=60).aenqueue("shop.example")
    assert guide.sql("select keys from later where id = %s", [later.id]) == [(["domain:shop.example"],)]
    assert guide.sql("select template, code from limit_rules order by template") == [
        ("domain:{domain}", {"concurrency": 2, "breaker_after": 5, "breaker_pause": 300, "breaker_cap": 3600}),
        ("visits:{tenant}", {"rate": 600, "per": 60, "burst": 10}),
    ]


# -- batches.md


@check
async def batch(guide: Guide) -> None:
    id_ = await asyncio.to_thread(guide.start, [(1, "Ada"), (2, "Grace")])
    info = await until(lambda: over(guide, id_))
    assert (info.status, info.total, info.tenant) == ("succeeded", 2, "acme")
    assert (await ended(guide.hf, info.callback)).result == "import: 2 of 2, 0 failed"


@check
async def join(guide: Guide) -> None:
    assert guide.output == "succeeded: 2 of 2, 0 failed, 0 canceled\n"


@check
async def crawl(guide: Guide) -> None:
    async with guide.hf.batch("crawl") as batch:
        await guide.crawl.using(batch=batch).aenqueue(1, 3)
    info = await batch.ajoin(40)
    assert (info.status, info.total) == ("succeeded", 15)


# -- steps.md


@check
async def order(guide: Guide) -> None:
    job = guide.order.enqueue("o-1")
    await until(lambda: guide.sql("select 1 from later where waits_for = 'signal approved:o-1'"))
    assert guide.hf.signal("approved:o-1", guide.Approval("ann"))
    assert (await ended(guide.hf, job.id)).result == "o-1 is on its way, 2 labels, approved by ann"


@check
async def approve(guide: Guide) -> None:
    assert guide.output == "o-42 is on its way, 2 labels, approved by ann\n"


@check
async def exactly_once(guide: Guide) -> None:
    job = guide.booked.enqueue("o-1")
    assert (await ended(guide.hf, job.id)).result == 100
    assert guide.sql("table public.ledger") == [(7, 100)]


@check
async def after(guide: Guide) -> None:
    assert guide.output.endswith("o-4 is on its way\n")


async def over(guide: Guide, batch_id: str) -> Any:
    info = await guide.hf.batches.aget(batch_id)
    return info if info is not None and info.ended else None


# -- limits.md


@check
async def fair(guide: Guide) -> None:
    assert await (await guide.visit.aenqueue("a.example", "x")).aresult(10) == "visited a.example for x"
    (limit,) = await guide.hf.limits.alist("source:x")
    assert (limit.rate, limit.per, limit.burst, limit.breaker_after, limit.breaker) == (30, 60, 5, 5, "closed")


@check
async def operate(guide: Guide) -> None:
    assert re.fullmatch(r"domain:shop.example: [01] running, \d+ throttled\n", guide.output), guide.output
    assert all(limit.override == {} for limit in guide.hf.limits.list())


@check
async def orders(guide: Guide) -> None:
    jobs = [await guide.book.aenqueue("a", n) for n in range(3)]
    for job in jobs:
        await job.aresult(40)
    starts = [info.started_at for job in jobs if (info := await job.ainfo()) is not None]
    assert starts == sorted(starts)
    assert len(starts) == 3


@check
async def pauses(guide: Guide) -> None:
    (limit,) = guide.hf.limits.list("tenant:acme")
    assert (limit.paused, limit.paused_by, limit.paused_reason) == (True, "ann", "unpaid")


@check
async def asking(guide: Guide) -> None:
    first, second, *_ = guide.output.splitlines()[1:]
    assert re.fullmatch(r"tenant:acme was paused [\d.]+ m?s ago by ann \(unpaid\), for another 10 min.*", first), first
    assert second.startswith("paused {")
    assert (await ended(guide.hf, guide.waiting.id)).status is Status.SUCCEEDED


# -- outbox.md


@check
async def channel(guide: Guide) -> None:
    emitted = await guide.hf.outbox.aemit(None, guide.send_email, guide.Email("a@b.c", "hello"), key="k")
    info = await ended(guide.hf, emitted.id)
    assert (info.status, guide.SENT) == (Status.SUCCEEDED, {"email//k": "a@b.c"})


@check
async def emitting(guide: Guide) -> None:
    assert guide.sql("select amount from public.ledger") == [(40,)]
    await until(lambda: [it.status for it in guide.hf.outbox.list(key="invoice-7")] == ["delivered"])
    assert "existing: True" in guide.output


@check
async def in_a_job(guide: Guide) -> None:
    await ended(guide.hf, (await guide.invoice.using(tenant="acme").aenqueue(8)).id)
    await until(lambda: guide.SENT.get("email/acme/invoice-8") == "ada@example.org")


@check
async def before_sending(guide: Guide) -> None:
    emitted = await guide.hf.outbox.aemit(None, "charge", {"card": "1", "cents": 5}, key="c-1")
    assert (await ended(guide.hf, emitted.id)).attempts == 2
    assert guide.CHARGED == {"charge//c-1": 5}


@check
async def ordering(guide: Guide) -> None:
    keys = {it.key: it.order for it in guide.hf.outbox.list(channel="chat")}
    assert keys == {"m-1": "user-1", "m-2": "user-1", "m-3": "user-2"}


# -- webhooks.md


@check
async def endpoint(guide: Guide) -> None:
    made = guide.hf.webhooks.get(guide.names["endpoint"].id)
    assert (made.tenant, made.events, made.secret) == ("acme", ["order.*", "refund.made"], None)
    assert guide.output.splitlines()[0] == guide.names["endpoint"].secret


@check
async def publishing(guide: Guide) -> None:
    assert "deliveries: 1" in guide.output
    (delivery,) = guide.hf.webhooks.deliveries()
    assert (delivery.event_type, delivery.body) == ("order.paid", '{"order":7}')
    assert guide.sql("select * from public.ledger") == [(7, 40)]
    again = Event("order.paid", {}, tenant="acme", key="paid-7")
    assert guide.hf.webhooks.publish(None, again).existing


@check
async def receiving(guide: Guide) -> None:
    headers = sign(b"{}", guide.SECRET, "msg", "dlv", "order.paid", time.time())
    assert [guide.receive(b"{}", headers), guide.receive(b"{}", headers)] == [204, 204]
    assert {"msg"} == guide.SEEN
    assert guide.receive(b"{ }", headers) == 401
    assert guide.receive(b"{}", {}) == 401


@check
async def policy(guide: Guide) -> None:
    guide.hf.webhooks.publish(None, Event("order.paid", {}, tenant="acme"))
    assert guide.hf.webhooks.deliveries()[0].max_attempts == 5
    assert [guide.hf.webhooks.retry.delay(n) for n in (1, 2, 10, 11)] == [2, 4, 1024, 1024]


@check
async def again(guide: Guide) -> None:
    assert (guide.failed, guide.answers) == ([], [])
    (waiting_,) = guide.hf.webhooks.deliveries()
    guide.hf.jobs.cancel(waiting_.id)
    run("webhooks.md", *programs("webhooks.md")[4], guide)
    assert [each.id for each in guide.failed] == [waiting_.id]
    assert [each.outcome for each in guide.answers] == ["copied"]


@check
async def rotating(guide: Guide) -> None:
    made = guide.hf.webhooks.get(guide.names["endpoint"].id)
    assert made.secrets == 2 and guide.new_secret != guide.names["endpoint"].secret


# -- sinks.md


@check
async def sinks(guide: Guide) -> None:
    result = [
        (await ended(guide.hf, (await guide.scrape.aenqueue(7, strength)).id)).result for strength in (3, 3, 2, 5)
    ]
    assert result == ["inserted", "kept", "kept", "updated"]
    assert guide.sql("select intake_id, match_strength, details from public.price_points") == [
        (7, 5, {"grade": "MS-65", "seen": [1, 2]})
    ]


@check
async def keys(guide: Guide) -> None:
    (job,) = guide.hf.jobs.list(task="guide.scrape")
    assert (await ended(guide.hf, job.id)).status is Status.SUCCEEDED
    shown = re.findall(r"\)  # (\S+)", dict(programs("sinks.md"))["keys"])
    assert shown[-1] == guide.job_key("sync", "org-1", {"b": 2, "a": 1})


# -- observe.md


@check
async def figures(guide: Guide) -> None:
    assert b"holdfast_workers 0.0" in guide.text and guide.content_type.startswith("text/plain")


@check
async def sentry(guide: Guide) -> None:
    (result,) = guide.hf.registry.on_failure
    assert callable(result)


@check
async def spans(guide: Guide) -> None:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    memory = InMemorySpanExporter()
    guide.provider.add_span_processor(guide.SimpleSpanProcessor(memory))
    assert await (await guide.greet.aenqueue("Bob")).aresult(40) == "hello Bob"
    await until(lambda: len(memory.get_finished_spans()) >= 2)
    trace_ids = {each.name: each.context.trace_id for each in memory.get_finished_spans()}
    assert set(trace_ids) == {"enqueue default", "run default"} and len(set(trace_ids.values())) == 1


@check
async def meters(guide: Guide) -> None:
    (meter,) = guide.hf.registry.meters
    assert meter.name == "holdfast"
    assert await asyncio.to_thread(guide.meter_provider.force_flush)
    guide.meter_provider.shutdown()


# -- schedules.md


@check
async def periodic(guide: Guide) -> None:
    found = await until(guide.hf.schedules.alist)
    assert [(each.name, each.cron, each.zone, each.payload) for each in found] == [
        ("acme weekly", "0 9 * * MON", "Europe/Berlin", {"kind": "short", "days": 7}),
        ("nightly", "0 3 * * *", "UTC", {"kind": "full"}),
    ]


# -- actions.md


async def dead_charge(guide: Guide, order: int) -> str:
    """Make a dead job by hand: no worker of the test serves its queue."""
    job: str = (await guide.charge.aenqueue(order, "a.example")).id
    claimed = "from claim('by hand', '{charges}')"  # none while the upkeep of a worker holds the ring
    die = f"""select fail(id, token, '{{"type": "TimeoutError"}}', p_outcome => 'dead') {claimed}"""
    await until(lambda: guide.sql(die))
    return job


@check
async def preview(guide: Guide) -> None:
    await dead_charge(guide, 1)
    assert await asyncio.to_thread(guide.look) == 1


@check
async def start(guide: Guide) -> None:
    job = await dead_charge(guide, 1)
    assert await asyncio.to_thread(guide.retry_all, "ada") == 1
    assert (await waiting(guide.hf, job)).status is Status.RETRYING
    assert guide.sql("select by, reason from audit") == [("ada", "the provider is back")]


@check
async def edit(guide: Guide) -> None:
    job = await dead_charge(guide, 1)
    assert await asyncio.to_thread(guide.correct, job) == "retried"
    assert (await waiting(guide.hf, job)).payload == {"order": 43, "shop": "a.example"}


@check
async def search(guide: Guide) -> None:
    job = await dead_charge(guide, 42)
    assert await asyncio.to_thread(guide.orders, 42) == [job]
