"""A shop at work: jobs of every kind, with a worker and a past, so that each page of the dashboard has something on it.

The browser's tests and `tools/screenshots.py` look at it.
"""

from __future__ import annotations

import asyncio
import inspect
import linecache
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg

from holdfast import CONTEXT, Breaker, Context, Cron, Event, Fail, Holdfast, Limit, Retry
from holdfast.worker import Worker
from tests.conftest import wait_until

TENANTS = ("acme", "birch", "cedar", "delta")
OPERATOR = "grace"
SLOTS = 16
QUEUES = ["mail", "billing", "crm", "feeds", "media", "imports", "reports", "outbox", "webhooks"]
OLD = "storefront-2-4711"  # a worker that is gone
ORDER = {"order": 4711, "total": "129.00", "currency": "EUR", "items": ["desk lamp", "bulb E27"]}


@dataclass
class Storefront:
    """The application; `closing` lets its long jobs end. `paths` names a page of each kind."""

    hf: Holdfast
    closing: threading.Event
    paths: dict[str, str] = field(default_factory=dict)

    def enqueue(self, task: str, calls: list[dict[str, Any]], **options: Any) -> list[str]:
        """Enqueue jobs, spread over the tenants unless one is given."""
        found: list[str] = []
        for place, tenant in enumerate([options.pop("tenant")] if "tenant" in options else TENANTS):
            mine = calls if "tenant" in options else calls[place :: len(TENANTS)]
            if mine:
                found += self.hf.registry.tasks[task].using(tenant=tenant, **options).enqueue_many(mine).ids
        return found


def placed(handler: Callable[..., Any], path: str) -> Callable[..., Any]:
    """Return a handler whose tracebacks show it in a file of the shop, and not where the tests are."""
    source = inspect.getsourcefile(handler) or ""
    linecache.cache[path] = (1, None, linecache.getlines(source), path)
    code = handler.__code__  # type: ignore[attr-defined]
    handler.__code__ = code.replace(co_filename=path, co_qualname=handler.__name__)  # type: ignore[attr-defined]
    return handler


def storefront(dsn: str, closing: threading.Event) -> Storefront:
    """Return the application of the shop."""
    shop = Storefront(Holdfast(dsn), closing)
    shop.hf.webhooks.retry = Retry.fixed(7200, max_attempts=10)
    _tasks(shop.hf)
    _failing_tasks(shop.hf)
    _long_tasks(shop)
    return shop


def _tasks(hf: Holdfast) -> None:
    @hf.task(name="mail.receipt", queue="mail", limits=[Limit("provider:mail", rate=6000, per=60, burst=500)])
    async def receipt(order: int, to: str) -> str:
        await asyncio.sleep(0.005)
        return f"sent to {to}"

    @hf.task(name="contacts.import", queue="crm")
    async def import_contact(row: int, name: str) -> None: ...

    @hf.task(name="contacts.report", queue="crm")
    async def report(batch: str) -> str:
        return f"report of {batch}"

    @hf.task(name="orders.remind", queue="mail")
    async def remind(order: int) -> None: ...

    @hf.task(name="reports.sales", queue="reports")
    async def sales(kind: str, days: int = 1) -> None: ...

    sales.schedule("nightly sales", "0 3 * * *", "full")
    sales.using(tenant="acme").schedule("acme weekly", Cron("0 9 * * MON", "Europe/Berlin", "skip"), "short", days=7)
    sales.schedule("stock levels", "*/30 * * * *", "stock")


def _failing_tasks(hf: Holdfast) -> None:
    async def charge(order: int, card: str) -> str:
        if card.startswith("4000"):
            raise Fail(f"the card of order {order} has expired", code="CARD_EXPIRED")
        return f"charged order {order}"

    async def invoice(order: int, country: str) -> str:
        rates = {"DE": 0.19, "FR": 0.2}
        return f"invoice of {order} with {rates[country]:.0%}"

    async def sync(contact: int, *, ctx: Context = CONTEXT) -> None:
        if contact % 3 == 0:
            ctx.log(f"contact {contact} has changed in the address book")
            raise ConnectionError("crm.example: connection reset by peer")

    async def fetch(domain: str, path: str) -> None:
        if domain == "slow.example":
            raise TimeoutError(f"{domain} did not respond in 10 s")

    domain = Limit("domain:{domain}", concurrency=2, breaker=Breaker(after=5, pause=900))
    for handler, name, options in (
        (charge, "billing.charge", {"queue": "billing"}),
        (invoice, "billing.invoice", {"queue": "billing", "retry": Retry.fixed(0.05, max_attempts=2)}),
        (sync, "crm.sync", {"queue": "crm", "retry": Retry.fixed(900, max_attempts=5)}),
        (fetch, "feeds.fetch", {"queue": "feeds", "limits": [domain]}),
    ):
        hf.task(name=name, **options)(placed(handler, f"/srv/shop/{name.partition('.')[0]}.py"))

    @hf.channel("email", retry=Retry.fixed(900, max_attempts=5))
    async def email(delivery: Any) -> None:
        if delivery.payload["to"].startswith("bounce"):
            raise ConnectionError("mail.example: 451 mailbox is busy, try again later")

    @hf.channel("sms", retry=Retry.fixed(0.05, max_attempts=2))
    async def sms(delivery: Any) -> None:
        raise ValueError("the number +49 30 0000 has no owner")


def _long_tasks(shop: Storefront) -> None:
    @shop.hf.task(name="media.transcode", queue="media", limits=[Limit("encoder:{tenant}", concurrency=2)])
    async def transcode(video: str, *, ctx: Context = CONTEXT) -> None:
        ctx.log(f"opened {video}: 1920 x 1080, 25 frames a second")
        ctx.progress(4, 9, "chapter 4 of 9")
        while not shop.closing.is_set():  # noqa: ASYNC110 - the event is of another thread
            await asyncio.sleep(0.05)


@contextmanager
def working(hf: Holdfast, **settings: Any) -> Iterator[Worker]:
    """Run a worker in a thread for the length of a block; its application serves nothing else."""
    worker = Worker(hf, **({"poll": 0.2, "upkeep": 0.2, "grace": 5.0} | settings))
    loop = asyncio.new_event_loop()

    async def run() -> None:
        await worker.run()
        await hf.aclose()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        loop.call_soon_threadsafe(worker.stop)
        thread.join(60)
        loop.close()


@contextmanager
def receiving() -> Iterator[str]:
    """Run a customer's server, which accepts what is sent to /orders; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            status, text = (200, b'{"received": true}') if self.path == "/orders" else (503, b"down for maintenance")
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def opened(dsn: str) -> Iterator[Storefront]:
    """Open the shop: its worker runs, its jobs have ended, failed, wait and run."""
    closing = threading.Event()
    shop, staff = storefront(dsn, closing), storefront(dsn, closing)
    with ExitStack() as stack:
        stack.callback(shop.hf.close)
        address = stack.enter_context(receiving())
        _operate(shop.hf)
        stack.enter_context(working(staff.hf, concurrency=SLOTS, queues=QUEUES))
        stack.callback(closing.set)
        _backlog(shop)
        _morning(shop)
        _messages(shop, address)
        wait_until(lambda: settled(shop.hf))
        _name_pages(shop)
        with psycopg.connect(dsn, autocommit=True, options="-c search_path=holdfast") as conn:
            for statement in PAST:
                conn.execute(statement)
        yield shop


def settled(hf: Holdfast) -> bool:
    """Return whether all that can run has run, and its errors are in their groups."""
    groups = sum(each.dead for each in hf.dead.errors.list())
    waits = ("feeds", "media", "imports")
    busy = [each for each in hf.queues.list() if each["ready"] + each["running"] and each["queue"] not in waits]
    return not busy and groups == hf.dead.count() > 20 and open_breakers(hf) > 0


def open_breakers(hf: Holdfast) -> int:
    """Return how many breakers are open."""
    return sum(each.breaker == "open" for each in hf.limits.list(prefix="domain:"))


def _operate(hf: Holdfast) -> None:
    """Do what operators do before the day begins."""
    hf.limits.set("tenant:acme", weight=3, by=OPERATOR, reason="the contract of November")
    hf.limits.set("tenant:birch", weight=2, by=OPERATOR, reason="the contract of May")
    hf.limits.set("encoder:acme", concurrency=6, by=OPERATOR, reason="the contract of November")
    hf.limits.set("encoder:birch", concurrency=4, by="ada", reason="the contract of May")
    hf.limits.set("domain:shop.example", concurrency=8, by="ada", reason="they have more servers now")
    hf.tokens.create("storefront", tenant=None, scopes=["jobs:read", "jobs:write"], by=OPERATOR)
    hf.tokens.create("acme backend", tenant="acme", scopes=["jobs:read"], lifetime=90 * 86_400, rate=50, by=OPERATOR)
    _, old = hf.tokens.create("old deploy script", tenant=None, scopes=["operate"], by="ada")
    hf.tokens.revoke(old.id, by=OPERATOR, reason="it was in a log")
    calls = hf.database.calls.workers
    hf.database.sync_pool.run(calls.register(OLD, "storefront-2", 4711, "0.1.0", ["mail", "feeds"], 8, []))


def _morning(shop: Storefront) -> None:
    """Enqueue what ends at once, well or badly."""
    hf = shop.hf
    done = hf.registry.tasks["contacts.report"]
    with hf.batch("contacts of the trade fair", tenant="acme", on_done=done) as batch:
        people = [{"row": n, "name": f"Visitor {n}"} for n in range(80)]
        hf.registry.tasks["contacts.import"].using(batch=batch).enqueue_many(people)
    shop.enqueue("mail.receipt", [{"order": 4000 + n, "to": f"customer{n}@example.org"} for n in range(240)])
    shop.enqueue("billing.charge", [{"order": 4300 + n, "card": "5105..."} for n in range(40)])
    shop.enqueue("billing.charge", [{"order": 4400 + n, "card": "4000..."} for n in range(9)])
    shop.enqueue("billing.invoice", [{"order": 4500 + n, "country": ("DE", "FR", "NO")[n % 3]} for n in range(42)])
    shop.enqueue("crm.sync", [{"contact": n} for n in range(21)])
    shop.enqueue("feeds.fetch", [{"domain": "shop.example", "path": f"/feed/{n}"} for n in range(24)])
    shop.enqueue("feeds.fetch", [{"domain": "slow.example", "path": f"/feed/{n}"} for n in range(14)], tenant="cedar")
    shop.paths["batch"] = f"/batches/{batch.id}"


def _messages(shop: Storefront, address: str) -> None:
    """Emit messages and publish events, of which some fail."""
    hf = shop.hf
    for number in range(6):
        to = "bounce@example.org" if number == 4 else f"customer{number}@example.org"
        made = hf.outbox.emit(None, "email", {"to": to, "order": number}, key=f"shipped-{4700 + number}", tenant="acme")
        shop.paths["message"] = f"/outbox/{made.id}"
    for number in range(2):
        hf.outbox.emit(None, "sms", {"to": "+49 30 0000"}, key=f"code-{number}", tenant="birch")
    good = hf.webhooks.add(f"{address}/orders", tenant="acme", events=["order.*"], dev=True, description="the ERP")
    hf.webhooks.add(f"{address}/down", tenant="acme", events=["order.paid"], dev=True, description="the warehouse")
    off = hf.webhooks.add("https://hooks.delta.example/all", tenant="delta", description="a trial")
    hf.webhooks.disable(off.id, "the trial has ended")
    for kind in ("order.paid", "order.shipped", "order.paid"):
        (delivery, *_) = hf.webhooks.publish(None, Event(kind, ORDER, "acme")).deliveries
    shop.paths |= {"endpoint": f"/webhooks/{good.id}", "delivery": f"/webhooks/deliveries/{delivery}"}


def _backlog(shop: Storefront) -> None:
    """Enqueue what stays: jobs that run long and those behind them, delayed ones, a paused queue and schedule."""
    hf = shop.hf
    hf.limits.pause("queue:imports", reason="the warehouse moves", by=OPERATOR, for_=7200)
    wait_until(lambda: len(hf.schedules.list()) == 3)  # the worker registers them when it starts
    hf.schedules.pause("stock levels", by="ada", reason="the warehouse moves")
    with hf.batch("contacts of the newsletter", tenant="birch") as batch:
        people = [{"row": n, "name": f"Reader {n}"} for n in range(60)]
        hf.registry.tasks["contacts.import"].using(batch=batch, queue="imports").enqueue_many(people)
    shop.enqueue("orders.remind", [{"order": 4800 + n} for n in range(30)], delay=7200)
    videos = shop.enqueue("media.transcode", [{"video": f"films/{4900 + n}.mov"} for n in range(64)])
    (running, *_) = wait_until(lambda: [each for each in hf.jobs.list(status="running") if each.progress])
    shop.paths |= {"running job": f"/jobs/{running.id}", "waiting job": f"/jobs/{videos[-1]}"}


def _name_pages(shop: Storefront) -> None:
    """Note a path of each page; discard some jobs, so that there is an action; let endpoints look like a customer's."""
    hf = shop.hf
    for endpoint in hf.webhooks.list():
        if endpoint.dev:
            name = "orders" if endpoint.description == "the ERP" else "stock"
            hf.webhooks.update(endpoint.id, url=f"https://hooks.acme.example/{name}", dev=False)
    (dead, *_) = hf.jobs.list(status="dead", task="billing.invoice", limit=1)
    (expired, *_) = [each for each in hf.dead.errors.list() if each.code == "CARD_EXPIRED"]
    (missing, *_) = [each for each in hf.dead.errors.list() if each.task == "billing.invoice"]
    action = hf.actions.start(
        "discard", {"error_group": expired.fingerprint, "tenant": "delta"}, by="ada", reason="they pay by invoice now"
    )
    shop.paths |= {
        "overview": "/", "jobs": "/jobs", "job": f"/jobs/{dead.id}", "dead": "/dead",
        "group": f"/dead/{missing.fingerprint}", "preview": "/actions?kind=retry&status=dead", "queues": "/queues",
        "tasks": "/tasks", "tenants": "/tenants", "limits": "/limits",
        "limit": "/limits/key?key=domain:slow.example", "rule": "/limits/key?key=domain:%7Bdomain%7D",
        "batches": "/batches", "schedules": "/schedules", "outbox": "/outbox", "webhooks": "/webhooks",
        "workers": "/workers", "usage": "/usage", "tokens": "/tokens", "audit": "/audit",
        "action": f"/audit/{action.id}",
    }  # fmt: skip


# The hours before the shop opened, which no one waits for.
PAST = (
    f"UPDATE workers SET heartbeat_at = heartbeat_at - interval '9 minutes' WHERE id = '{OLD}'",
    f"UPDATE workers SET host = 'storefront-1' WHERE id <> '{OLD}'",
    """
    INSERT INTO minutes
    SELECT date_trunc('minute', now()) - make_interval(mins => ago), queue, ended, round(ended * failing), 0,
           ended * 0.04, 0.016, 0.25 + 0.05 * sin(ago / 4.0), 0.9 + 0.3 * sin(ago / 3.0),
           greatest(0, round(depth * (1.2 + sin(ago / 6.0 + depth)))), 4, 8, 2
    FROM generate_series(2, 61) AS ago
    CROSS JOIN (VALUES ('mail', 210, 0.0, 30), ('billing', 60, 0.12, 9), ('feeds', 90, 0.05, 22), ('media', 8, 0.0, 40),
                       ('crm', 40, 0.03, 4)) AS q(queue, rate, failing, depth)
    CROSS JOIN LATERAL (SELECT round(rate * (1.1 + 0.5 * sin(ago / 9.0) + 0.25 * sin(ago * 2.3)))::bigint AS ended) e
    ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO error_counts
    SELECT fingerprint, date_trunc('hour', now()) - make_interval(hours => ago),
           abs(hashtext(fingerprint || ago)) % 9 + 10 - ago
    FROM error_groups CROSS JOIN generate_series(1, 9) AS ago WHERE abs(hashtext(fingerprint)) % 3 < 2
    ON CONFLICT DO NOTHING
    """,
    """
    UPDATE error_groups g SET first_at = h.first,
           attempts = g.attempts + h.attempts
    FROM (SELECT fingerprint, min(hour) AS first, sum(attempts) AS attempts FROM error_counts
          WHERE hour < date_trunc('hour', now()) GROUP BY 1) h WHERE h.fingerprint = g.fingerprint
    """,
    """
    INSERT INTO usage_counts
    SELECT date_trunc('hour', now()) - make_interval(hours => ago), tenant, task, 0, runs, runs * failing, runs * mean,
           runs * 0.05
    FROM generate_series(1, 23) AS ago
    CROSS JOIN (VALUES ('acme', 3), ('birch', 2), ('cedar', 1), ('delta', 1)) AS t(tenant, size)
    CROSS JOIN (VALUES ('mail.receipt', 90, 0.002, 0.2), ('billing.charge', 30, 0.04, 0.9),
                       ('media.transcode', 4, 0, 95), ('feeds.fetch', 60, 0.03, 0.4)) AS k(task, rate, failing, mean)
    CROSS JOIN LATERAL (SELECT round(size * rate * (1.1 + sin(ago / 4.0)))::bigint AS runs) r WHERE runs > 0
    ON CONFLICT DO NOTHING
    """,
)
