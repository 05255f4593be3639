"""Handlers in child processes: what they return and raise, what kills them, and that none is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE, wait_until
from running import ended, until, waiting, working
from workers import APPS, worker

from holdfast import ConfigurationError, Holdfast, Status
from holdfast.model.job import Job, ids
from holdfast.model.outcome import Outcome
from holdfast.settings import Settings
from holdfast.worker.hand import Lease
from holdfast.worker.processes import Processes

sys.path.append(str(APPS))
import crunch


@pytest.fixture
def app(dsn: str) -> Iterator[Holdfast]:
    """The application of tests/apps/crunch.py on the test's database."""
    crunch.hf.use(Settings.load(dsn=dsn))
    yield crunch.hf
    crunch.hf.close()


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return [each for each in found if b"holdfast.worker.child" in Path(f"/proc/{each}/cmdline").read_bytes()]


async def pids(file: Path) -> list[int]:
    """What a handler noted, once it has."""
    await asyncio.to_thread(wait_until, file.exists)
    return [int(each) for each in (await asyncio.to_thread(file.read_text)).split()]


async def gone(pid: int, seconds: float = PATIENCE) -> None:
    async def is_gone() -> bool:
        return not alive(pid)

    await until(is_gone, seconds)


@asynccontextmanager
async def processes(**settings: Any) -> AsyncIterator[Processes]:
    """One place for child processes, without a worker and a database."""
    pool = Processes(Settings(child_processes=1, **settings), lambda: False)
    try:
        yield pool
    finally:
        await pool.close(at_once=False)
        assert not children(os.getpid())


def job(**payload: object) -> Job:
    """A claimed job as a worker holds it."""
    row = (ids.make(), 7, "", json.dumps(payload), 1, 5, "default", 2, None, 0.0, None, None)
    return Job(row, Lease(7, 1, 0.0, 60.0))


def unheard(job: Job, done: float, total: float | None, message: str | None) -> None:
    """Takes a report of progress."""


def told(info: Any) -> dict[str, Any]:
    assert info.last_error is not None
    return dict(info.last_error)


async def test_a_handler_in_a_process_gets_its_arguments_and_its_result_is_kept(app: Holdfast) -> None:
    async with working(app):
        info = await ended(app, (await crunch.add.aenqueue(1)).id)
        nothing = await ended(app, (await crunch.takes.aenqueue("é" * 300_000)).id)
    assert (info.status, info.result, info.attempts) == (Status.SUCCEEDED, {"sum": 3}, 1)
    assert nothing.result == 300_000


async def test_the_process_is_another_one_and_is_reused(app: Holdfast) -> None:
    async with working(app, child_processes=1):
        jobs = await crunch.whoami.aenqueue_many(range(30))
        seen = {(await ended(app, each)).result for each in jobs}
    assert len(seen) == 1 and os.getpid() not in seen


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


@pytest.mark.parametrize(
    ("name", "status", "kind"),
    [
        ("blocked", Status.DEAD, "crunch.Blocked"),
        ("lookup", Status.FAILED, "KeyError"),
        ("other", Status.RETRYING, "RuntimeError"),
    ],
)
async def test_an_error_comes_back_with_its_chain_and_output_and_is_judged_by_the_policy(
    app: Holdfast, name: str, status: Status, kind: str
) -> None:
    async with working(app):
        info = await waiting(app, (await crunch.raise_named.aenqueue(name)).id)
    error = told(info)
    assert (info.status, error["type"]) == (status, kind)
    assert f"because of {name}" in error["message"]
    assert "ValueError: the cause" in error["traceback"] and "direct cause" in error["traceback"]
    assert "crunch.py" in error["traceback"]
    assert error["output"] == f"about to raise {name}\n"


@pytest.mark.parametrize(
    ("name", "status", "attempts"),
    [
        ("later", Status.RETRYING, 1),
        ("fail", Status.FAILED, 1),
        ("dead", Status.DEAD, 1),
        ("snooze", Status.RETRYING, 0),
        ("cancel", Status.CANCELED, 1),
    ],
)
async def test_the_words_a_handler_may_raise_work_in_a_process(
    app: Holdfast, name: str, status: Status, attempts: int
) -> None:
    async with working(app):
        info = await waiting(app, (await crunch.verdict.aenqueue(name)).id)
    assert (info.status, info.attempts) == (status, attempts)
    assert told(info)["message"] == str(crunch.VERDICTS[name])


async def test_a_timeout_kills_the_process_and_says_so(app: Holdfast, tmp_path: Path) -> None:
    async with working(app, child_processes=1):
        info = await ended(app, (await crunch.endless.aenqueue(str(tmp_path / "pid"))).id)
        (pid,) = await pids(tmp_path / "pid")
        await gone(pid)
        assert (await ended(app, (await crunch.add.aenqueue(1)).id)).status is Status.SUCCEEDED
    assert info.status is Status.DEAD
    assert told(info)["code"] == "TIMEOUT"
    assert "ran longer than its timeout of 1 s; its process was killed" in told(info)["message"]


async def test_the_timeout_counts_from_the_start_and_not_while_waiting_for_a_process(app: Holdfast) -> None:
    async with working(app, child_processes=1):
        slow = await crunch.nap.aenqueue(2.5)
        behind = await crunch.nap_briefly.aenqueue_many([0.1] * 3)  # their timeout is 2 s
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
        assert not running.hand.running


@pytest.mark.parametrize(("stubborn", "grace"), [(False, 3600.0), (True, 2.0)])
async def test_a_canceled_attempt_frees_its_slot_at_once_and_its_process_is_asked_then_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubborn: bool, grace: float
) -> None:
    monkeypatch.setattr("holdfast.worker.processes.CANCEL_GRACE", grace)
    async with processes() as pool:
        running = asyncio.create_task(pool.run(crunch.sit, job(file=str(tmp_path / "pid"), stubborn=stubborn), unheard))
        (pid,) = await pids(tmp_path / "pid")
        running.cancel()
        await asyncio.wait({running}, timeout=min(grace / 2, 30))
        assert running.cancelled()
        await gone(pid)


async def test_a_canceled_process_that_ends_its_job_in_good_order_is_replaced(tmp_path: Path) -> None:
    async with processes() as pool:
        running = asyncio.create_task(pool.run(crunch.sit_until_told, job(file=str(tmp_path / "pid")), unheard))
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
    """The process that a job ran in."""
    outcome, _ = await pool.run(task, job(), unheard)
    assert isinstance(outcome, Outcome) and outcome.result is not None, outcome
    return int(bytes(outcome.result))


async def test_what_a_handler_started_ends_with_it(app: Holdfast, tmp_path: Path) -> None:
    async with working(app):
        info = await ended(app, (await crunch.crash_with_company.aenqueue(str(tmp_path / "pid"))).id)
        for pid in await pids(tmp_path / "pid"):
            await gone(pid)
    assert "exited with code 7" in told(info)["message"]


async def test_a_stopped_worker_leaves_no_process(app: Holdfast, tmp_path: Path) -> None:
    async with working(app, grace=0.1, child_processes=2):
        assert (await ended(app, (await crunch.add.aenqueue(1)).id)).status is Status.SUCCEEDED
        job = await crunch.with_company.aenqueue(str(tmp_path / "pid"))
        busy = await pids(tmp_path / "pid")
        assert children(os.getpid())
    assert not children(os.getpid())
    for pid in busy:
        await gone(pid)
    info = await app.aget(job.id)
    assert info is not None and (info.status, info.attempts) == (Status.QUEUED, 0), "given back"


async def test_a_stopping_worker_gives_back_what_waits_for_a_process(app: Holdfast, sql: Any, tmp_path: Path) -> None:
    async with working(app, grace=20, child_processes=1) as running:
        first = await crunch.nap.aenqueue(3)
        await until(lambda: _true(len(running.hand.running) == 1))
        rest = await crunch.whoami.aenqueue_many(range(5))
        await until(lambda: _true(len(running.hand.running) == 6))
    assert (await ended(app, first.id)).status is Status.SUCCEEDED
    assert sql("select count(*), max(attempt) from live where token is null") == [(len(rest), 0)]


async def _true(value: object) -> object:
    return value


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
        seen = [(await ended(app, (await crunch.whoami.aenqueue()).id)).result for _ in range(7)]
    assert [seen.index(pid) for pid in seen] == [0, 0, 0, 3, 3, 3, 6]
    assert not any(map(alive, seen))


async def test_a_process_that_holds_too_much_memory_is_replaced(app: Holdfast) -> None:
    async with working(app, child_processes=1, process_max_rss=150):
        seen = [(await ended(app, (await crunch.grow.aenqueue(mb)).id)).result for mb in (1, 1, 200, 1, 1)]
    assert [seen.index(pid) for pid in seen] == [0, 0, 0, 3, 3]


async def test_crashes_say_how_the_process_ended_and_what_it_wrote(app: Holdfast) -> None:
    async with working(app):
        left = told(await ended(app, (await crunch.exit_now.aenqueue(1)).id))
        fault = told(await ended(app, (await crunch.segfault.aenqueue()).id))
        asked = told(await ended(app, (await crunch.leave.aenqueue(3)).id))
    assert left["message"] == "exited with code 1 while running the job (the process of task 'crunch.exit_now')"
    assert (left["code"], left["output"]) == ("PROCESS_DIED", "last words\n")
    assert fault["message"].startswith("killed by SIGSEGV (Segmentation fault) while running the job (the process of")
    assert "Fatal Python error: Segmentation fault" in fault["output"]
    assert "crunch.py" in fault["output"] and "in segfault" in fault["output"]
    assert (asked["type"], asked["message"]) == ("SystemExit", "3")


async def test_running_out_of_memory_reads_so_and_the_next_job_has_a_fresh_process(app: Holdfast) -> None:
    async with working(app, child_processes=1, process_memory=512):
        before = (await ended(app, (await crunch.whoami.aenqueue()).id)).result
        error = told(await ended(app, (await crunch.allocate.aenqueue(2048)).id))
        after = (await ended(app, (await crunch.whoami.aenqueue()).id)).result
    assert error["type"] == "MemoryError"
    assert error["message"] == "out of memory; its process may use 512 MB (process_memory)"
    assert before != after


@pytest.mark.parametrize("fail", [False, True])
async def test_huge_output_holds_up_nobody_and_only_its_end_is_kept(
    app: Holdfast, capfd: pytest.CaptureFixture[str], fail: bool
) -> None:
    async with working(app):
        info = await ended(app, (await crunch.chatter.aenqueue(20_000, fail)).id)
    assert "line 0 " in capfd.readouterr().err, "the worker passes it on"
    if fail:
        assert "line 19999" in told(info)["output"]
        assert "line 0 " not in told(info)["output"]
        assert len(told(info)["output"]) <= 8192
    else:
        assert info.last_error is None


async def test_a_huge_result_comes_through_and_one_that_is_too_large_fails(app: Holdfast) -> None:
    async with working(app):
        info = await ended(app, (await crunch.large.aenqueue(1_000_000)).id)
        failed = await ended(app, (await crunch.large.aenqueue(2_000_000)).id)
    assert len(info.result) == 1_000_000
    assert failed.status is Status.FAILED and "more than the 1,048,576 allowed" in told(failed)["message"]


async def test_a_payload_that_does_not_fit_fails_at_once_however_odd(app: Holdfast, sql: Any) -> None:
    odd = ['{"a": ' + "[" * 5000 + "]" * 5000 + "}", '{"a": "\\ud800"}', '{"a": 1e999}', '{"b": 1}', '{"a":\n"x"}']
    found = [sql("select id from enqueue('crunch.add', '{}')")[0][0] for _ in odd]
    for job_id, payload in zip(found, odd, strict=True):
        sql("update live set payload = %s::json where id = %s", [payload, job_id])
    async with working(app, child_processes=1):
        await until(lambda: _true(not sql("select 1 from live")))
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
    assert "the result of task 'crunch.odd' cannot be carried as JSON" in told(info)["message"]


async def test_binary_output_is_kept_as_text(app: Holdfast, capfd: pytest.CaptureFixture[str]) -> None:
    async with working(app):
        error = told(await ended(app, (await crunch.garbage.aenqueue()).id))
    assert "\\xff" in error["output"] and error["output"].endswith("the end\n")
    assert "\x00" not in error["output"]


@pytest.mark.parametrize("how", ["object", "descriptor"])
async def test_a_handler_that_closes_its_output_does_not_silence_the_next(app: Holdfast, how: str) -> None:
    async with working(app, child_processes=1):
        info = await ended(app, (await crunch.close_output.aenqueue(how)).id)
        error = told(await ended(app, (await crunch.talk_and_fail.aenqueue("still here")).id))
        same = (await ended(app, (await crunch.whoami.aenqueue()).id)).result
    assert (info.status, info.result) == (Status.SUCCEEDED, same)
    assert error["output"] == "still here\n"


async def test_a_job_is_not_blamed_for_what_an_earlier_one_wrote(app: Holdfast) -> None:
    async with working(app, child_processes=1):
        await ended(app, (await crunch.chatter.aenqueue(50, False)).id)
        error = told(await ended(app, (await crunch.talk_and_fail.aenqueue("mine")).id))
    assert error["output"] == "mine\n"


async def test_a_handler_that_breaks_the_line_to_its_worker_fails_alone(app: Holdfast) -> None:
    async with working(app, child_processes=1):
        closed = told(await ended(app, (await crunch.close_everything.aenqueue()).id))
        shut = told(await ended(app, (await crunch.shut_down.aenqueue()).id))
        babbled = told(await ended(app, (await crunch.babble.aenqueue()).id))
        assert (await ended(app, (await crunch.add.aenqueue(1)).id)).status is Status.SUCCEEDED
    assert "while running the job" in closed["message"]
    assert "broke the line to its worker and was killed while running the job" in babbled["message"]
    assert shut["message"] == babbled["message"].replace("babble", "shut_down")


async def test_a_handler_that_forks_answers_once(app: Holdfast) -> None:
    async with working(app, child_processes=1):
        info = await ended(app, (await crunch.fork_and_return.aenqueue()).id)
        assert (await ended(app, (await crunch.add.aenqueue(1)).id)).status is Status.SUCCEEDED
    assert info.result == "original"


@pytest.fixture
def broken(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module that works where it was first imported and does as told in a child process."""
    monkeypatch.syspath_prepend(tmp_path)
    modules: list[str] = []

    def make(name: str, in_child: str) -> Any:
        (tmp_path / f"{name}.py").write_text(
            f"import os, sys\nfrom holdfast import Holdfast, Retry\nif os.getpid() != {os.getpid()}:\n    {in_child}\n"
            "hf = Holdfast()\n"
            "@hf.task(runner='process', timeout=1, retry=Retry.fixed(0.05, max_attempts=2))\n"
            "def work() -> None: ...\n"
        )
        module = __import__(name)
        module.hf.use(Settings.load(dsn=dsn))
        modules.append(name)
        return module

    yield make
    for name in modules:
        sys.modules.pop(name).hf.close()


@pytest.mark.parametrize(
    ("what", "word"),
    [
        ("import surely_not_there", "cannot import 'broken_{n}': ModuleNotFoundError: No module named 'surely_not"),
        ("sys.exit('not today')", "cannot import 'broken_{n}': SystemExit: not today"),
        ("os._exit(4)", "exited with code 4 before the job started, while importing 'broken_{n}'"),
        ("Holdfast.task = lambda *a, **k: lambda f: f", "'broken_{n}' has no task 'broken_{n}.work'"),
    ],
)
async def test_a_module_that_a_child_cannot_import_fails_its_jobs_and_nothing_spins(
    broken: Any, request: pytest.FixtureRequest, what: str, word: str
) -> None:
    number = abs(hash(what))
    module = broken(f"broken_{number}", what)
    async with working(module.hf, child_processes=1):
        info = await ended(module.hf, (await module.work.aenqueue()).id)
    assert (info.status, info.attempts) == (Status.DEAD, 2)
    assert word.format(n=number) in told(info)["message"]


async def test_the_timeout_does_not_count_the_import(broken: Any) -> None:
    module = broken("slow_import", "import time; time.sleep(1.5)")
    async with working(module.hf, child_processes=1):
        assert (await ended(module.hf, (await module.work.aenqueue()).id)).status is Status.SUCCEEDED


async def test_a_memory_limit_too_low_to_start_with_is_told(broken: Any) -> None:
    module = broken("hungry_app", "hoard = bytearray(1 << 28)")
    async with working(module.hf, child_processes=1, process_memory=24):
        error = told(await ended(module.hf, (await module.work.aenqueue()).id))
    assert "'hungry_app'" in error["message"] and "may use 24 MB (process_memory)" in error["message"]


async def test_a_module_that_starts_a_worker_when_imported_is_told_not_to(broken: Any) -> None:
    module = broken(
        "eager_app",
        "import asyncio; from holdfast.worker import Worker; asyncio.run(Worker(Holdfast('postgresql://x')).run())",
    )
    async with working(module.hf, child_processes=1):
        info = await ended(module.hf, (await module.work.aenqueue()).id)
    assert "must not run a worker when it is imported" in told(info)["message"]


def test_a_runner_that_does_not_fit_is_refused_by_name() -> None:
    hf = Holdfast("postgresql://nowhere")

    async def asynchronous() -> None: ...
    def plain() -> None: ...

    assert hf.task(name="a")(asynchronous).runner == "async"
    assert hf.task(name="b")(plain).runner == "thread"
    assert hf.task(name="c", runner="async")(asynchronous).runner == "async"
    with pytest.raises(ConfigurationError, match="'d' has runner 'async', but its handler is not a coroutine"):
        hf.task(name="d", runner="async")(plain)
    with pytest.raises(ConfigurationError, match="'e' has runner 'thread', but its handler is a coroutine"):
        hf.task(name="e", runner="thread")(asynchronous)
    with pytest.raises(ConfigurationError, match="'f' has runner 'proces'; it is 'async', 'thread' or 'process'"):
        hf.task(name="f", runner="proces")(plain)  # type: ignore[arg-type]


def test_a_process_handler_must_be_a_function_that_a_child_can_import() -> None:
    hf = Holdfast("postgresql://nowhere")

    def inside() -> None: ...

    with pytest.raises(ConfigurationError, match=r"'g' has runner 'process', but .* inside something else .*importing"):
        hf.task(name="g", runner="process")(inside)
    with pytest.raises(ConfigurationError, match="is a lambda"):
        hf.task(name="h", runner="process")(lambda: None)
    assert hf.task(name="i", runner="process")(crunch.add.handler).runner == "process"


PROGRAM = """
import asyncio
from holdfast import Holdfast
from holdfast.worker import Worker
hf = Holdfast()

@hf.task(runner="process")
def double(n: int) -> int:
    return 2 * n

async def main() -> None:
    worker = Worker(hf)
    running = asyncio.create_task(worker.run())
    print(await (await double.aenqueue(21)).aresult(40))
    worker.stop()
    await running
    await hf.aclose()

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_the_tasks_of_a_program_that_is_run_as_a_file_are_found(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "program.py").write_text(PROGRAM)
    command = [sys.executable, "scripts/program.py"]
    env = os.environ | {"HOLDFAST_DSN": dsn}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("42\n", 0), done.stderr
