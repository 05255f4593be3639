"""Request coalescing: concurrent requests go into one call, and each gets its own result. So do concurrent enqueues."""

from __future__ import annotations

import asyncio
import ctypes
import enum
import gc
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, Limit, Retry
from holdfast.errors import ConfigurationError, DatabaseUnavailable, SchemaError, UsageError
from holdfast.store.wire import prepared, statements_async
from holdfast.store.wire.coalesce import MOST_BYTES, PATIENCE, LoopCoalescer, ThreadCoalescer
from tests.conftest import wait_until
from tests.support.running import until, working


async def test_requests_during_a_call_go_into_the_next_one() -> None:
    calls: list[int] = []
    go = asyncio.Event()

    async def act(wishes: Sequence[int]) -> list[int | Exception]:
        calls.append(len(wishes))
        await go.wait()
        return [wish * 2 if wish != 3 else UsageError("three") for wish in wishes]

    coalescer = LoopCoalescer(act)
    asking = [asyncio.create_task(coalescer.ask(n)) for n in range(50)]
    await asyncio.sleep(0)
    go.set()
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert [each for n, each in enumerate(results) if n != 3] == [n * 2 for n in range(50) if n != 3]
    assert isinstance(results[3], UsageError)
    assert sum(calls) == 50 and len(calls) <= 2


async def test_a_wish_that_fails_a_call_fails_alone() -> None:
    calls = 0

    async def act(wishes: Sequence[int]) -> list[int]:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        if 7 in wishes:
            raise UsageError("seven")
        return list(wishes)

    coalescer = LoopCoalescer(act)
    results = await asyncio.gather(*(coalescer.ask(n) for n in range(100)), return_exceptions=True)
    assert isinstance(results[7], UsageError)
    assert [each for n, each in enumerate(results) if n != 7] == [n for n in range(100) if n != 7]
    assert calls < 30  # halves of the rest, not each by itself


async def test_an_unreachable_database_fails_all_requests_of_a_call_and_is_not_tried_again_for_each() -> None:
    calls = 0

    async def act(wishes: Sequence[int]) -> list[int]:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        raise DatabaseUnavailable("away")

    coalescer: LoopCoalescer[int, int] = LoopCoalescer(act)
    results = await asyncio.gather(*(coalescer.ask(n) for n in range(100)), return_exceptions=True)
    assert all(isinstance(each, DatabaseUnavailable) for each in results) and calls <= 2


async def test_a_large_request_goes_into_a_call_of_its_own() -> None:
    calls: list[list[int]] = []

    async def act(wishes: list[int]) -> list[int]:
        calls.append(wishes)
        await asyncio.sleep(0)
        return wishes

    coalescer: LoopCoalescer[int, int] = LoopCoalescer(act, size=lambda wish: wish)
    wishes = [1, 2, MOST_BYTES, 3, MOST_BYTES * 2, 4, 5]
    assert await asyncio.gather(*map(coalescer.ask, wishes)) == wishes
    assert all(sum(each) <= MOST_BYTES or len(each) == 1 for each in calls) and len(calls) == 6


async def test_a_request_that_goes_away_leaves_the_results_of_other_requests() -> None:
    go = asyncio.Event()

    async def act(wishes: Sequence[int]) -> list[int]:
        await go.wait()
        return list(wishes)

    coalescer = LoopCoalescer(act)
    gone, stays = (asyncio.create_task(coalescer.ask(n)) for n in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    go.set()
    assert await stays == 1
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_a_request_right_after_a_result_gets_its_own_result() -> None:
    """A call that is just ending brings no more results, so it must not count as one that is under way."""
    coalescer: LoopCoalescer[int, int] = LoopCoalescer(doubled, at_once=1)
    async with asyncio.timeout(20):
        for n in range(5):
            assert await coalescer.ask(n) == 2 * n


async def doubled(wishes: list[int]) -> list[int]:
    await asyncio.sleep(0)
    return [2 * wish for wish in wishes]


async def test_one_slow_call_delays_neither_waiting_nor_later_requests() -> None:
    go, begun, under_way = asyncio.Event(), asyncio.Event(), 0

    async def act(wishes: list[int]) -> list[int]:
        nonlocal under_way
        under_way += 1
        begun.set()
        assert under_way <= 2
        if 0 in wishes:
            await go.wait()
        await asyncio.sleep(0)
        under_way -= 1
        return [2 * wish for wish in wishes]

    coalescer: LoopCoalescer[int, int] = LoopCoalescer(act)
    slow = asyncio.create_task(coalescer.ask(0))
    await begun.wait()
    async with asyncio.timeout(20):
        for n in range(1, 5):
            assert await coalescer.ask(n) == 2 * n
        go.set()
        assert await slow == 0
        assert await asyncio.gather(*map(coalescer.ask, range(5, 9))) == [10, 12, 14, 16]


async def test_a_slow_call_leaves_waiting_requests_to_the_one_beside_it_and_none_is_forgotten() -> None:
    gates, begun = [asyncio.Event() for _ in range(3)], [asyncio.Event() for _ in range(3)]

    async def act(wishes: list[int]) -> list[int]:
        begun[wishes[0]].set()
        await gates[wishes[0]].wait()
        return wishes

    coalescer: LoopCoalescer[int, int] = LoopCoalescer(act)
    asking = []
    async with asyncio.timeout(20):
        for n in range(3):
            asking.append(asyncio.create_task(coalescer.ask(n)))
            await (begun[n].wait() if n < 2 else asyncio.sleep(0))
        for n in (0, 2, 1):  # the first ends while the second is under way and the third waits for a call
            gates[n].set()
            await asyncio.sleep(0)
        assert await asyncio.gather(*asking) == [0, 1, 2]


async def test_beside_a_slow_call_a_single_request_gets_its_result_at_once() -> None:
    go, begun = asyncio.Event(), asyncio.Event()

    async def act(wishes: list[int]) -> list[int]:
        begun.set()
        if wishes == [0]:
            await go.wait()
        return wishes

    coalescer: LoopCoalescer[int, int] = LoopCoalescer(act)
    slow = asyncio.create_task(coalescer.ask(0))
    await begun.wait()
    assert await coalescer.ask(1) == 1  # after a while
    loop = asyncio.get_running_loop()
    began = loop.time()
    for n in range(2, 22):
        assert await coalescer.ask(n) == n
    assert loop.time() - began < 20 * PATIENCE / 2
    go.set()
    assert await slow == 0


def test_loops_that_have_ended_are_forgotten() -> None:
    coalescer: LoopCoalescer[int, int] = LoopCoalescer(doubled)
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def ask() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        assert await asyncio.gather(*map(coalescer.ask, range(5))) == [0, 2, 4, 6, 8]

    for _ in range(3):
        asyncio.run(ask())
    gc.collect()
    assert [each() for each in loops] == [None] * 3


class Gate:
    """An `act` for threads that doubles its requests once the gate is open."""

    def __init__(self, *, refused: int | None = None) -> None:
        self.open = threading.Event()
        self.calls: list[list[int]] = []
        self._refused = refused

    def act(self, wishes: list[int]) -> list[int]:
        self.calls.append(wishes)
        assert self.open.wait(20)
        if self._refused in wishes:
            raise UsageError("refused")
        return [2 * wish for wish in wishes]


def asked(coalescer: ThreadCoalescer[int, int], gate: Gate, number: int) -> list[Any]:
    """Ask in many threads while the first call is under way; return the results in order."""
    with ThreadPoolExecutor(number) as threads:
        first = threads.submit(coalescer.ask, 0)
        wait_until(lambda: gate.calls)
        rest = [threads.submit(coalescer.ask, n) for n in range(1, number)]
        wait_until(lambda: len(gate.calls) == 2)  # beside the first, which is slow
        gate.open.set()
        return [each.exception(20) or each.result(20) for each in (first, *rest)]


def test_threads_that_ask_during_a_call_share_the_next_ones() -> None:
    gate = Gate()
    coalescer: ThreadCoalescer[int, int] = ThreadCoalescer(gate.act)
    assert asked(coalescer, gate, 30) == [2 * n for n in range(30)]
    assert sorted(n for call in gate.calls for n in call) == list(range(30))
    assert len(gate.calls) < 10
    assert coalescer.ask(40) == 80 and gate.calls[-1] == [40]


def test_the_request_of_a_thread_that_fails_a_call_fails_alone() -> None:
    gate = Gate(refused=7)
    results = asked(ThreadCoalescer(gate.act), gate, 30)
    assert isinstance(results.pop(7), UsageError)
    assert results == [2 * n for n in range(30) if n != 7]


def test_the_request_of_an_interrupted_thread_holds_up_no_other() -> None:
    gate, waiting = Gate(), []
    coalescer: ThreadCoalescer[int, int] = ThreadCoalescer(gate.act)

    def ask(n: int) -> int:
        waiting.append(threading.get_ident())
        return coalescer.ask(n)

    with ThreadPoolExecutor(6) as threads:
        slow = [threads.submit(coalescer.ask, n) for n in range(2)]
        wait_until(lambda: len(gate.calls) == 2)  # the most that are under way at once
        interrupted = threads.submit(ask, 2)
        wait_until(lambda: waiting)
        rest = [threads.submit(coalescer.ask, n) for n in range(3, 5)]
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(waiting[0]), ctypes.py_object(KeyboardInterrupt))
        assert isinstance(interrupted.exception(20), KeyboardInterrupt)
        gate.open.set()
        assert [each.result(20) for each in slow + rest] == [0, 2, 6, 8]
    assert all(2 not in call for call in gate.calls)


def test_a_large_request_of_a_thread_goes_into_a_call_of_its_own() -> None:
    gate = Gate()
    coalescer: ThreadCoalescer[int, int] = ThreadCoalescer(gate.act, size=lambda wish: wish and MOST_BYTES)
    assert asked(coalescer, gate, 5) == [0, 2, 4, 6, 8]
    assert all(len(call) == 1 for call in gate.calls)


async def together(hf: Holdfast, tasks: Sequence[Callable[..., Any]]) -> list[Any]:
    """Call them all at once in coroutines; return results and exceptions."""
    results = await asyncio.gather(*(each() for each in tasks), return_exceptions=True)
    await hf.aclose()
    return results


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that the fast path executes."""
    found: list[str] = []

    def noted(conn: Any, sql: str, params: Sequence[Any]) -> Any:
        found.append(sql)
        return (yield from prepared.execute(conn, sql, params))

    monkeypatch.setattr(statements_async, "execute", noted)
    return found


async def test_jobs_enqueued_at_the_same_time_share_statements_and_keep_their_values(
    hf: Holdfast, statements: list[str]
) -> None:
    @hf.task(queue="mail", priority=1, limits=[Limit("to:{to}", concurrency=2)])
    async def send(to: str, text: str) -> None: ...

    @hf.task()
    async def plain(n: int) -> None: ...

    hostile = 'a "quoted" {brace}, a \\ and NULL\nline'
    calls: list[Callable[..., Any]] = [
        lambda n=n: plain.using(tenant="t" if n % 2 else None).aenqueue(n) for n in range(20)
    ]
    calls += [lambda n=n: send.using(tenant="acme").aenqueue(f'x{n},"{n}"', hostile) for n in range(20)]
    calls += [lambda n=n: plain.using(delay=3600, max_attempts=7).aenqueue(n) for n in range(2)]
    calls += [lambda: plain.using(tenant="NULL", retry=Retry.fixed(9, max_attempts=3)).aenqueue(99)]
    handles = await together(hf, calls)
    assert len(statements) < 6
    found = {job.id: job for job in (hf.jobs.get(each.id) for each in handles) if job is not None}
    assert [found[each.id].payload for each in handles[:20]] == [{"n": n} for n in range(20)]
    assert [found[each.id].tenant for each in handles[:4]] == [None, "t", None, "t"]
    assert [found[each.id].payload for each in handles[20:40]] == [
        {"to": f'x{n},"{n}"', "text": hostile} for n in range(20)
    ]
    assert {(found[each.id].queue, found[each.id].priority) for each in handles[20:40]} == {("mail", 1)}
    assert [found[each.id].max_attempts for each in handles[40:]] == [7, 7, 3]
    assert (found[handles[42].id].tenant, not any(each.existing for each in handles)) == ("NULL", True)
    assert [each.id for each in handles[:20]] == sorted(each.id for each in handles[:20])


async def test_workers_run_jobs_of_all_kinds_that_were_enqueued_together(hf: Holdfast) -> None:
    ran: list[int] = []

    @hf.task(limits=[Limit("key:{key}", concurrency=1)])
    async def keyed(n: int, key: str) -> None:
        ran.append(n)

    @hf.task()
    async def plain(n: int) -> None:
        ran.append(n)

    async with working(hf, poll=60.0) as worker:
        await until(lambda: worker.claimer.intake.counts.claims >= 3)
        await asyncio.gather(
            *(plain.aenqueue(n) for n in range(50)), *(keyed.aenqueue(n, f"k{n % 3}") for n in range(50, 90))
        )
        await until(lambda: len(ran) == 90)
    assert sorted(ran) == list(range(90))


async def test_a_job_that_the_database_refuses_spoils_no_other(hf: Holdfast) -> None:
    @hf.task()
    async def plain(n: int) -> None: ...

    jobs = [plain.new_job((n,), {}) for n in range(20)]
    jobs[7].queue = "a/b"
    results = await together(hf, [lambda job=job: plain.aenqueue_job(job) for job in jobs])
    assert isinstance(results[7], UsageError)
    assert {job.id for job in jobs if job is not jobs[7]} == {each.id for each in hf.jobs.list()}


def test_threads_enqueue_together_and_a_job_that_is_refused_spoils_no_other(hf: Holdfast) -> None:
    @hf.task()
    def plain(n: int) -> None: ...

    jobs = [plain.new_job((n,), {}) for n in range(60)]
    jobs[7].queue = "a/b"
    with ThreadPoolExecutor(20) as threads:
        enqueued = [threads.submit(plain.enqueue_job, job) for job in jobs]
    assert isinstance(enqueued.pop(7).exception(), UsageError)
    assert [each.result().id for each in enqueued] == [job.id for job in jobs if job.queue != "a/b"]
    assert {job.id for job in jobs if job.queue != "a/b"} == {each.id for each in hf.jobs.list(limit=100)}


async def test_jobs_enqueued_together_are_accepted_once_when_the_reply_is_lost(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    @hf.task()
    async def plain(n: int) -> None: ...

    lost: list[str] = []

    def losing(conn: Any, sql: str, params: Sequence[Any]) -> Any:
        rows = yield from prepared.execute(conn, sql, params)
        if not lost and "unnest" in sql:
            lost.append(sql)
            raise psycopg.OperationalError("the reply was lost")
        return rows

    monkeypatch.setattr(statements_async, "execute", losing)
    await plain.aenqueue(-1)
    handles = await together(hf, [lambda n=n: plain.aenqueue(n) for n in range(20)])
    assert len(lost) == 1 and len({each.id for each in handles}) == 20
    assert {each.id for each in handles} <= {each.id for each in hf.jobs.list(limit=100)}
    assert len(hf.jobs.list(limit=100)) == 21


async def test_a_caller_that_is_canceled_leaves_the_jobs_of_other_callers(hf: Holdfast) -> None:
    @hf.task()
    async def plain(n: int) -> None: ...

    await plain.aenqueue(-1)
    enqueuing = [asyncio.create_task(plain.aenqueue(n)) for n in range(10)]
    await asyncio.sleep(0)
    enqueuing[0].cancel()  # its call is under way, and the others wait for it
    enqueuing[3].cancel()
    results = await asyncio.gather(*enqueuing, return_exceptions=True)
    assert [n for n, each in enumerate(results) if isinstance(each, asyncio.CancelledError)] == [0, 3]
    stored = {job.payload["n"] for job in await hf.jobs.alist(limit=100)}
    assert set(range(10)) - {0, 3} <= stored
    await hf.aclose()


@pytest.mark.parametrize(
    "error",
    [
        SchemaError("not migrated"),
        ConfigurationError("no right"),
        DatabaseUnavailable("away"),
        ZeroDivisionError("a fault"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_that_every_request_would_meet_is_that_of_all(error: Exception) -> None:
    calls = 0

    async def act(wishes: Sequence[int]) -> list[int]:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        raise error

    coalescer: LoopCoalescer[int, int] = LoopCoalescer(act)
    results = await asyncio.gather(*(coalescer.ask(n) for n in range(100)), return_exceptions=True)
    assert all(type(each) is type(error) for each in results) and calls <= 2


async def test_a_refusal_that_has_no_name_of_its_own_is_that_of_one_request() -> None:
    async def act(wishes: Sequence[int]) -> list[int]:
        await asyncio.sleep(0)
        if 7 in wishes:
            raise DatabaseUnavailable("a trigger of the application") from psycopg.errors.RaiseException("no")
        return list(wishes)

    coalescer: LoopCoalescer[int, int] = LoopCoalescer(act)
    results = await asyncio.gather(*(coalescer.ask(n) for n in range(20)), return_exceptions=True)
    assert [n for n, each in enumerate(results) if isinstance(each, DatabaseUnavailable)] == [7]


def test_a_loop_that_ends_during_a_call_begins_no_other_and_is_forgotten(recwarn: pytest.WarningsRecorder) -> None:
    calls: list[list[int]] = []
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def act(wishes: list[int]) -> list[int]:
        calls.append(wishes)
        await asyncio.sleep(60)
        return wishes

    coalescer: LoopCoalescer[int, int] = LoopCoalescer(act)

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        asking = [asyncio.create_task(coalescer.ask(n)) for n in range(5)]
        await asyncio.sleep(0)
        assert len(asking) == 5

    asyncio.run(main())
    gc.collect()
    assert calls == [[0]] and loops[0]() is None


async def test_a_request_that_was_canceled_while_it_waited_is_not_served() -> None:
    go, calls = asyncio.Event(), []

    async def act(wishes: list[int]) -> list[int]:
        calls.append(wishes)
        await go.wait()
        return wishes

    coalescer: LoopCoalescer[int, int] = LoopCoalescer(act)
    asking = [asyncio.create_task(coalescer.ask(n)) for n in range(4)]
    await asyncio.sleep(0)
    asking[2].cancel()
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*asking, return_exceptions=True)
    assert calls == [[0], [1, 3]]


def test_beside_a_slow_call_a_thread_gets_its_result_at_once() -> None:
    go, begun = threading.Event(), threading.Event()

    def act(wishes: list[int]) -> list[int]:
        if 0 in wishes:
            begun.set()
            assert go.wait(20)
        return wishes

    coalescer: ThreadCoalescer[int, int] = ThreadCoalescer(act)
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(coalescer.ask, 0)
        assert begun.wait(20)
        assert coalescer.ask(1) == 1  # after a while
        seconds = []
        for _ in range(5):  # one in which the machine does nothing else
            began = time.monotonic()
            assert [coalescer.ask(n) for n in range(2, 22)] == list(range(2, 22))
            seconds.append(time.monotonic() - began)
        assert min(seconds) < 20 * PATIENCE / 2
        go.set()
        assert slow.result(20) == 0


def test_an_error_of_a_signal_handler_reaches_the_thread_that_makes_the_call() -> None:
    """It does not count as the call's failure, which would be repeated in parts."""
    gate, errors = Gate(), []

    class SoftTimeLimit(Exception):
        pass

    def act(wishes: list[int]) -> list[int]:
        results = gate.act(wishes)
        if len(wishes) > 1:
            raise SoftTimeLimit
        return results

    coalescer: ThreadCoalescer[int, int] = ThreadCoalescer(act)
    with ThreadPoolExecutor(8) as threads:
        slow = [threads.submit(coalescer.ask, n) for n in range(2)]
        wait_until(lambda: len(gate.calls) == 2)
        rest = [threads.submit(coalescer.ask, n) for n in range(2, 8)]
        wait_until(lambda: coalescer.waiting == 6)
        gate.open.set()
        errors = [type(each.exception(20)) for each in rest]
        assert [each.result(20) for each in slow] == [0, 2]
    assert Counter(errors) == {SoftTimeLimit: 1, DatabaseUnavailable: 5} and len(gate.calls) == 3


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # from Python 3.12 on, in a process with threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_process_waits_for_no_call_of_its_parent() -> None:
    gate = Gate()
    coalescer: ThreadCoalescer[int, int] = ThreadCoalescer(gate.act)
    with ThreadPoolExecutor(2) as threads:
        slow = [threads.submit(coalescer.ask, n) for n in range(2)]
        wait_until(lambda: len(gate.calls) == 2)
        if (child := os.fork()) == 0:
            gate.open.set()
            os._exit(coalescer.ask(21))
        _, status = os.waitpid(child, 0)
        gate.open.set()
        assert [each.result(20) for each in slow] == [0, 2]
    assert os.waitstatus_to_exitcode(status) == 42


async def test_values_of_subclasses_are_those_of_their_kind(hf: Holdfast) -> None:
    class Queue(enum.StrEnum):
        MAIL = "mail"

    class Level(enum.IntEnum):
        HIGH = 1

    @hf.task()
    async def plain(n: int) -> None: ...

    given = plain.using(queue=Queue.MAIL, priority=Level.HIGH)
    alone = given.enqueue(1)
    handles = await together(hf, [lambda n=n: given.aenqueue(n) for n in range(5)])
    for each in (alone, *handles):
        info = hf.jobs.get(each.id)
        assert info is not None and (info.queue, info.priority) == ("mail", 1)
