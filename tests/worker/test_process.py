"""Handlers in child processes: what they return and raise, what kills them, and that none is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Status
from holdfast.model.outcome import Outcome
from holdfast.worker.processes import Processes
from tests.conftest import wait_until
from tests.support.children import alive, app_fixture, children, discard, gone, job, last_error, pids, processes  # noqa: F401 - fixture
from tests.support.running import ended, until, waiting, working
from tests.support.workers import APPS, worker

sys.path.append(str(APPS))
import crunch

Sql = Callable[..., list[tuple[Any, ...]]]


async def test_a_handler_in_a_process_gets_its_arguments_and_its_result_is_kept(app: Holdfast) -> None:
    async with working(app):
        info = await ended(app, (await crunch.add.aenqueue(1)).id)
        nothing = await ended(app, (await crunch.takes.aenqueue("é" * 300_000)).id)
    assert (info.status, info.result, info.attempts) == (Status.SUCCEEDED, {"sum": 3}, 1)
    assert nothing.result == 300_000


async def test_the_process_is_another_one_and_is_reused(app: Holdfast) -> None:
    async with working(app, child_processes=1):
        jobs = (await crunch.whoami.aenqueue_many(range(30))).ids
        results = {(await ended(app, each)).result for each in jobs}
    assert len(results) == 1 and os.getpid() not in results


async def test_an_async_handler_runs_in_a_process_too_and_its_loop_stays(app: Holdfast) -> None:
    async with working(app, child_processes=1):
        assert (await ended(app, (await crunch.add_async.aenqueue(20, 22)).id)).result == 42
        loops = {(await ended(app, (await crunch.loop_id.aenqueue()).id)).result for _ in range(3)}
    assert len(loops) == 1


async def test_the_context_reaches_the_process(app: Holdfast) -> None:
    async with working(app):
        job = await crunch.context.using(tenant="acme").aenqueue(1)
        result = (await ended(app, job.id)).result
        assert result == [job.id, "crunch.context", "default", "acme", 1, 1, 3, True]
        job = await crunch.context_first.aenqueue(1)
        assert (await ended(app, job.id)).result == job.id


async def test_a_child_has_a_session_of_its_own_no_input_and_the_workers_settings(app: Holdfast, dsn: str) -> None:
    async with working(app):
        found = (await ended(app, (await crunch.asks_the_system.aenqueue()).id)).result
        assert found == {"session": True, "term": True, "stdin": True, "main": True, "dsn": dsn, "argv": []}
        inner = (await ended(app, (await crunch.enqueues.aenqueue(5)).id)).result
        assert (await ended(app, inner)).result == {"sum": 7}


async def test_an_error_comes_back_with_its_chain_and_output_and_is_judged_by_the_policy(app: Holdfast) -> None:
    expected = {
        "blocked": (Status.DEAD, "crunch.Blocked"),
        "lookup": (Status.FAILED, "KeyError"),
        "other": (Status.RETRYING, "RuntimeError"),
    }
    async with working(app):
        made = {name: (await crunch.raise_named.aenqueue(name)).id for name in expected}
        infos = {name: await waiting(app, each) for name, each in made.items()}
    for name, info in infos.items():
        error = last_error(info)
        assert (info.status, error["type"]) == expected[name]
        assert f"because of {name}" in error["message"]
        assert "ValueError: the cause" in error["traceback"] and "direct cause" in error["traceback"]
        assert "crunch.py" in error["traceback"] and "child.py" not in error["traceback"]
        assert error["output"] == f"about to raise {name}\n"


async def test_the_words_a_handler_may_raise_work_in_a_process(app: Holdfast) -> None:
    expected = {
        "later": (Status.RETRYING, 1),
        "fail": (Status.FAILED, 1),
        "dead": (Status.DEAD, 1),
        "snooze": (Status.RETRYING, 0),
        "cancel": (Status.CANCELED, 1),
    }
    async with working(app):
        made = {name: (await crunch.verdict.aenqueue(name)).id for name in expected}
        infos = {name: await waiting(app, each) for name, each in made.items()}
    assert {name: (info.status, info.attempts) for name, info in infos.items()} == expected
    for name, info in infos.items():
        assert last_error(info)["message"] == str(crunch.VERDICTS[name])


async def test_a_timeout_kills_the_process_and_says_so(app: Holdfast, tmp_path: Path) -> None:
    async with working(app, child_processes=1):
        info = await ended(app, (await crunch.endless.aenqueue(str(tmp_path / "pid"))).id)
        (pid,) = await pids(tmp_path / "pid")
        await gone(pid)
        assert (await ended(app, (await crunch.add.aenqueue(1)).id)).status is Status.SUCCEEDED
    assert info.status is Status.DEAD
    assert last_error(info)["code"] == "TIMEOUT"
    assert "ran longer than its timeout of 1 s; its process was killed" in last_error(info)["message"]


async def test_the_timeout_counts_from_the_start_and_not_while_waiting_for_a_process(app: Holdfast) -> None:
    async with working(app, child_processes=1):
        slow = await crunch.nap.aenqueue(2.5)
        behind = (await crunch.nap_briefly.aenqueue_many([0.1] * 3)).ids  # their timeout is 2 s
        assert (await ended(app, slow.id)).status is Status.SUCCEEDED
        assert {(await ended(app, each)).status for each in behind} == {Status.SUCCEEDED}


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_lost_lease_kills_the_process_at_once(
    app: Holdfast, sql: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    monkeypatch.setattr("holdfast.worker.processes.CANCEL_GRACE", 3600.0)
    async with working(app, lease=2.0, renew=0.05, upkeep=60.0) as running:
        await crunch.sit.aenqueue(str(tmp_path / "pid"), stubborn)
        (pid,) = await pids(tmp_path / "pid")
        sql("update claims set expires_at = now() - interval '1 second'")
        await gone(pid)
        assert not running.buffer.running


@pytest.mark.parametrize(("stubborn", "grace"), [(False, 3600.0), (True, 2.0)])
async def test_a_canceled_attempt_frees_its_slot_at_once_and_its_process_is_terminated_then_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubborn: bool, grace: float
) -> None:
    monkeypatch.setattr("holdfast.worker.processes.CANCEL_GRACE", grace)
    async with processes() as pool:
        running = asyncio.create_task(pool.run(crunch.sit, job(file=str(tmp_path / "pid"), stubborn=stubborn), discard))
        (pid,) = await pids(tmp_path / "pid")
        running.cancel()
        await asyncio.wait({running}, timeout=min(grace / 2, 30))
        assert running.cancelled()
        await gone(pid)


async def test_a_canceled_process_that_ends_its_job_in_good_order_is_replaced(tmp_path: Path) -> None:
    async with processes() as pool:
        running = asyncio.create_task(pool.run(crunch.sit_until_signaled, job(file=str(tmp_path / "pid")), discard))
        (pid,) = await pids(tmp_path / "pid")
        running.cancel()
        assert await pids(tmp_path / "pid.end") == [pid]
        assert await pid_of(pool) != pid
        await gone(pid)


async def test_a_child_that_dies_before_it_reads_a_job_costs_that_job_no_attempt() -> None:
    async with processes() as pool:
        first = await pid_of(pool)
        os.kill(first, signal.SIGSTOP)
        second = asyncio.create_task(pid_of(pool))
        await asyncio.sleep(0)  # it has been sent
        os.kill(first, signal.SIGKILL)
        assert await second != first


async def test_a_replaced_child_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.worker.processes.LEAVE_WITHIN", 0.2)
    async with processes(process_max_jobs=1) as pool:
        pid = await pid_of(pool, crunch.leave_a_thread)
        assert await pid_of(pool) != pid
        await gone(pid)


async def pid_of(pool: Processes, task: Any = crunch.whoami) -> int:
    """Return the process that a job ran in."""
    outcome, _ = await pool.run(task, job(), discard)
    assert isinstance(outcome, Outcome) and outcome.result is not None, outcome
    return int(bytes(outcome.result))


async def test_processes_that_a_handler_started_end_with_it(app: Holdfast, tmp_path: Path) -> None:
    async with working(app):
        info = await ended(app, (await crunch.crash_with_company.aenqueue(str(tmp_path / "pid"))).id)
        for pid in await pids(tmp_path / "pid"):
            await gone(pid)
    assert "exited with code 7" in last_error(info)["message"]


async def test_a_stopped_worker_leaves_no_process(app: Holdfast, tmp_path: Path) -> None:
    async with working(app, grace=0.1, child_processes=2):
        assert (await ended(app, (await crunch.add.aenqueue(1)).id)).status is Status.SUCCEEDED
        job = await crunch.with_company.aenqueue(str(tmp_path / "pid"))
        busy = await pids(tmp_path / "pid")
        assert children(os.getpid())
    assert not children(os.getpid())
    for pid in busy:
        await gone(pid)
    info = await app.jobs.aget(job.id)
    assert info is not None and (info.status, info.attempts) == (Status.QUEUED, 0), "released"


async def test_a_stopping_worker_gives_back_what_waits_for_a_process(app: Holdfast, sql: Any, tmp_path: Path) -> None:
    async with working(app, grace=20, child_processes=1) as running:
        first = await crunch.nap.aenqueue(3)
        await until(lambda: len(running.buffer.running) == 1)
        rest = (await crunch.whoami.aenqueue_many(range(5))).ids
        await until(lambda: len(running.buffer.running) == 6)
    assert (await ended(app, first.id)).status is Status.SUCCEEDED
    assert sql("select count(*), max(attempt) from live where token is null") == [(len(rest), 0)]


@pytest.mark.parametrize("task", ["sit", "sit_without_the_kernels_help", "sit_on_the_lock"])
def test_a_killed_worker_takes_its_processes_along(app: Holdfast, dsn: str, tmp_path: Path, task: str) -> None:
    getattr(crunch, task).enqueue(str(tmp_path / "pid"))
    with worker(dsn, tmp_path, "crunch", child_processes=2) as process:
        wait_until((tmp_path / "pid").exists)
        assert crunch.add.enqueue(1).result(40) == {"sum": 3}
        found = children(process.popen.pid)
        assert len(found) == 2, "one busy, one idle"
        process.kill()
        wait_until(lambda: not any(map(alive, found)))


async def test_a_process_is_replaced_after_so_many_jobs(app: Holdfast) -> None:
    async with working(app, child_processes=1, process_max_jobs=3):
        results = [(await ended(app, (await crunch.whoami.aenqueue()).id)).result for _ in range(7)]
    assert [results.index(pid) for pid in results] == [0, 0, 0, 3, 3, 3, 6]
    assert not any(map(alive, results))


async def test_a_process_that_holds_too_much_memory_is_replaced(app: Holdfast) -> None:
    async with working(app, child_processes=1, process_max_rss=150):
        results = [(await ended(app, (await crunch.grow.aenqueue(mb)).id)).result for mb in (1, 1, 200, 1, 1)]
    assert [results.index(pid) for pid in results] == [0, 0, 0, 3, 3]


async def test_crashes_say_how_the_process_ended_and_what_it_wrote(app: Holdfast) -> None:
    async with working(app):
        left = last_error(await ended(app, (await crunch.exit_now.aenqueue(1)).id))
        fault = last_error(await ended(app, (await crunch.segfault.aenqueue()).id))
        error = last_error(await ended(app, (await crunch.leave.aenqueue(3)).id))
    assert left["message"] == "exited with code 1 while running the job (the process of task 'crunch.exit_now')"
    assert (left["code"], left["output"]) == ("PROCESS_DIED", "last words\n")
    assert fault["message"].startswith("killed by SIGSEGV (Segmentation fault) while running the job (the process of")
    assert "Fatal Python error: Segmentation fault" in fault["output"]
    assert "crunch.py" in fault["output"] and "in segfault" in fault["output"]
    assert (error["type"], error["message"]) == ("SystemExit", "3")


async def test_running_out_of_memory_reads_so_and_the_next_job_has_a_fresh_process(app: Holdfast) -> None:
    async with working(app, child_processes=1, process_memory=512):
        before = (await ended(app, (await crunch.whoami.aenqueue()).id)).result
        error = last_error(await ended(app, (await crunch.allocate.aenqueue(2048)).id))
        after = (await ended(app, (await crunch.whoami.aenqueue()).id)).result
    assert error["type"] == "MemoryError"
    assert error["message"] == "out of memory; its process may use 512 MB (process_memory)"
    assert before != after


@pytest.mark.parametrize("fail", [False, True])
async def test_huge_output_delays_no_other_job_and_only_its_end_is_kept(
    app: Holdfast, capfd: pytest.CaptureFixture[str], fail: bool
) -> None:
    async with working(app):
        info = await ended(app, (await crunch.chatter.aenqueue(20_000, fail)).id)
    assert "line 0 " in capfd.readouterr().err, "the worker passes it on"
    if fail:
        assert "line 19999" in last_error(info)["output"]
        assert "line 0 " not in last_error(info)["output"]
        assert len(last_error(info)["output"]) <= 8192
    else:
        assert info.last_error is None


async def test_a_huge_result_comes_through_and_one_that_is_too_large_fails(app: Holdfast) -> None:
    async with working(app):
        info = await ended(app, (await crunch.large.aenqueue(1_000_000)).id)
        failed = await ended(app, (await crunch.large.aenqueue(2_000_000)).id)
    assert len(info.result) == 1_000_000
    assert failed.status is Status.FAILED and "more than the 1,048,576 allowed" in last_error(failed)["message"]


async def test_a_payload_that_does_not_fit_fails_at_once_however_odd(app: Holdfast, sql: Any) -> None:
    odd = ['{"a": ' + "[" * 5000 + "]" * 5000 + "}", '{"a": 1e999}', '{"b": 1}', '{"a":\n"x"}']
    found = [sql("select id from enqueue('crunch.add', '{}')")[0][0] for _ in odd]
    for job_id, payload in zip(found, odd, strict=True):
        sql("update live set payload = %s::json where id = %s", [payload, job_id])
    async with working(app, child_processes=1):
        await until(lambda: not sql("select 1 from live"))
    rows = sql("select status::text, attempts, last_error ->> 'message' from jobs")
    assert [row[:2] for row in rows] == [("failed", 1)] * len(odd)
    assert all("task 'crunch.add'" in row[2] for row in rows)


async def test_a_deep_result_comes_through(app: Holdfast) -> None:
    async with working(app, child_processes=1):
        info = await ended(app, (await crunch.deep.aenqueue(900)).id)
    assert info.status is Status.SUCCEEDED, info.last_error


async def test_a_result_that_cannot_be_carried_fails_with_a_clear_word(app: Holdfast) -> None:
    async with working(app):
        info = await ended(app, (await crunch.odd.aenqueue()).id)
    assert (info.status, info.attempts) == (Status.FAILED, 1)
    assert "the result of task 'crunch.odd' cannot be encoded as JSON" in last_error(info)["message"]


async def test_binary_output_is_kept_as_text(app: Holdfast, capfd: pytest.CaptureFixture[str]) -> None:
    async with working(app):
        error = last_error(await ended(app, (await crunch.garbage.aenqueue()).id))
    assert "\\xff" in error["output"] and error["output"].endswith("the end\n")
    assert "\x00" not in error["output"]


@pytest.mark.parametrize("how", ["object", "descriptor"])
async def test_a_handler_that_closes_its_output_does_not_silence_the_next(app: Holdfast, how: str) -> None:
    async with working(app, child_processes=1):
        info = await ended(app, (await crunch.close_output.aenqueue(how)).id)
        error = last_error(await ended(app, (await crunch.talk_and_fail.aenqueue("still here")).id))
        same = (await ended(app, (await crunch.whoami.aenqueue()).id)).result
    assert (info.status, info.result) == (Status.SUCCEEDED, same)
    assert error["output"] == "still here\n"


async def test_a_job_is_not_blamed_for_what_an_earlier_one_wrote(app: Holdfast) -> None:
    async with working(app, child_processes=1):
        await ended(app, (await crunch.chatter.aenqueue(50, False)).id)
        error = last_error(await ended(app, (await crunch.talk_and_fail.aenqueue("mine")).id))
    assert error["output"] == "mine\n"


async def test_output_of_another_tenants_job_is_never_kept(app: Holdfast) -> None:
    async with working(app, child_processes=1):
        await ended(app, (await crunch.write_for_ever.using(tenant="acme").aenqueue("acme's card")).id)
        same = last_error(await ended(app, (await crunch.talk_and_fail.using(tenant="acme").aenqueue("mine")).id))
        other = last_error(await ended(app, (await crunch.talk_and_fail.using(tenant="evil").aenqueue("mine")).id))
        again = last_error(await ended(app, (await crunch.talk_and_fail.using(tenant="acme").aenqueue("mine")).id))
    assert "mine" in same["output"]
    assert "output" not in other and "output" not in again


async def test_a_tenants_job_goes_to_the_idle_process_that_is_its_own(app: Holdfast) -> None:
    naps = [await crunch.nap.using(tenant=name).aenqueue(0.1) for name in ("acme", "evil")]
    async with working(app, child_processes=2):
        for each in naps:
            await ended(app, each.id)
        for name in ("acme", "evil", "acme"):
            error = last_error(await ended(app, (await crunch.talk_and_fail.using(tenant=name).aenqueue(name)).id))
            assert error["output"] == f"{name}\n"


async def test_output_is_scrubbed(app: Holdfast) -> None:
    async with working(app):
        error = last_error(await ended(app, (await crunch.talk_and_fail.aenqueue("password=hunter2")).id))
    assert error["output"] == "password=[secret]\n"


async def test_a_jobs_time_begins_when_a_child_has_it(app: Holdfast, sql: Sql) -> None:
    async with working(app, child_processes=1, window=0):
        jobs = [await crunch.nap.aenqueue(0.3) for _ in range(4)]
        infos = [await ended(app, each.id) for each in jobs]
    starts = sorted(info.started_at for info in infos if info.started_at)
    assert starts[-1] - starts[0] > timedelta(seconds=0.45)  # one after the other: 0.9 and more
    # In all, they ran for less than half of the time since they were claimed.
    passed = sum((info.finished_at - info.created_at).total_seconds() for info in infos if info.finished_at)
    ran, waited = sql("SELECT sum(run_seconds), sum(queue_seconds) FROM usage_counts")[0]
    assert float(ran) < 0.7 * passed and float(ran) + float(waited) < 1.1 * passed


async def test_a_handler_that_breaks_the_line_to_its_worker_fails_alone(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("process", "processes"):
        monkeypatch.setattr(f"holdfast.worker.{module}.LEAVE_WITHIN", 0.2)
    async with working(app, child_processes=1):
        closed = last_error(await ended(app, (await crunch.close_everything.aenqueue()).id))
        shut = last_error(await ended(app, (await crunch.shut_down.aenqueue()).id))
        babbled = last_error(await ended(app, (await crunch.babble.aenqueue()).id))
        assert (await ended(app, (await crunch.add.aenqueue(1)).id)).status is Status.SUCCEEDED
    assert "while running the job" in closed["message"]
    assert "sent invalid data to its worker and was killed while running the job" in babbled["message"]
    assert shut["message"] == babbled["message"].replace("babble", "shut_down")


async def test_a_handler_that_forks_returns_once(app: Holdfast) -> None:
    async with working(app, child_processes=1):
        info = await ended(app, (await crunch.fork_and_return.aenqueue()).id)
        assert (await ended(app, (await crunch.add.aenqueue(1)).id)).status is Status.SUCCEEDED
    assert info.result == "original"
