"""Each tenant has its own places, and waits for no other tenant's."""

from __future__ import annotations

import asyncio
import threading

from holdfast import Holdfast
from holdfast.model.token import Caller
from holdfast.web.service import Service
from holdfast.web.shares import Shares
from tests.support.serving import shop_fixture  # noqa: F401 - fixture

ACME, GLOBEX = (Caller(name, name, name, frozenset({"jobs:read"}), None) for name in ("acme", "globex"))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_tenant_has_so_many_places_at_once_and_others_have_theirs() -> None:
    shares, at_work, go = Shares(2), list[str | None](), asyncio.Event()

    async def work(tenant: str | None) -> None:
        async with shares.of(tenant):
            at_work.append(tenant)
            await go.wait()

    tasks = [asyncio.create_task(work(tenant)) for tenant in ("acme",) * 5 + ("globex", None)]
    await settle()
    assert at_work == ["acme", "acme", "globex", None]
    tasks[0].cancel()
    await settle()
    assert at_work[4:] == ["acme"]
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(at_work) == 7 and list(shares._loops.values()) == [{}], "tenants without requests are forgotten"


async def test_a_request_with_a_place_needs_no_second() -> None:
    shares = Shares(1)
    async with asyncio.timeout(40), shares.of("acme"), shares.of("acme"):
        pass
    assert list(shares._loops.values()) == [{}]


async def test_a_tenant_has_half_of_the_connections(shop: Holdfast) -> None:
    small = Holdfast(shop.settings.dsn, pool_size=4)
    service = Service(small)
    call = service.hf.database.calls.version()
    begun, release = asyncio.Semaphore(0), asyncio.Event()

    async def hold() -> None:
        async with service.transaction(ACME):
            begun.release()
            await release.wait()

    held = [asyncio.create_task(hold()) for _ in range(2)]
    for _ in held:
        await begun.acquire()
    waits = asyncio.create_task(service.run_for(ACME, call))
    try:
        for _ in range(5):
            assert await service.run_for(GLOBEX, call)
        assert not waits.done(), "two of four connections are in use, and two are left for others"
    finally:
        release.set()
    assert await waits
    await asyncio.gather(*held)
    await small.aclose()


async def test_one_large_body_of_a_tenant_is_checked_at_a_time(shop: Holdfast) -> None:
    service, begun, go = Service(shop), threading.Semaphore(0), threading.Event()

    def compute() -> None:
        begun.release()
        go.wait(40)

    first = [asyncio.create_task(service.in_thread(ACME, compute)) for _ in range(2)]
    await settle()
    other = asyncio.create_task(service.in_thread(GLOBEX, compute))
    try:
        for _ in range(2):
            assert await asyncio.to_thread(begun.acquire, timeout=40)
        assert len(service._threads._threads) == 2 and service._threads._work_queue.qsize() == 0
    finally:
        go.set()
    await asyncio.gather(*first, other)
