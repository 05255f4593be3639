"""A worker's health port: what it checks, and how soon it reports a change."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import ConfigurationError, Holdfast
from holdfast.settings import Settings
from holdfast.store.wire.session import ThreadSession
from holdfast.worker import health
from holdfast.worker.cancel import POLL_INTERVAL
from holdfast.worker.health import BEAT, HealthFile
from holdfast.worker.probes import MOST_ASKING, PORTS
from tests.conftest import PATIENCE, wait_until
from tests.support.running import pump, until, working

SLACK = 3.0  # seconds by which a busy machine may be late


@pytest.fixture
def port() -> int:
    """The first of some ports that are free."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return min(int(free.getsockname()[1]), 65000)


def ask(port: int, page: str = "/ready", method: str = "GET") -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{page}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as response:  # noqa: S310 - our own port
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())
    except OSError:
        return 0, {}


async def aask(port: int, page: str = "/ready") -> tuple[int, dict[str, Any]]:
    return await asyncio.to_thread(ask, port, page)


async def until_says(port: int, page: str, status: int) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        code, health = await aask(port, page)
        return health if code == status else None

    health: dict[str, Any] = await until(look)
    return health


async def test_a_worker_at_work_is_live_and_ready(hf: Holdfast, port: int) -> None:
    async with working(hf, health_port=port):
        health = await until_says(port, "/ready", 200)
        assert health["status"] == "ok" and set(health["checks"]) == {
            "worker",
            "loop",
            "claims",
            "lease_thread",
            "renewals",
            "schema",
            "database",
        }
        assert (await aask(port, "/live?verbose"))[0] == 200
        assert (await aask(port, "/jobs"))[0] == 404
        assert ask(port, "/live", "POST")[0] == 405
    assert ask(port) == (0, {}), "the port is closed when the worker has stopped"


def test_a_blocked_loop_is_reported_within_two_intervals(hf: Holdfast, port: int) -> None:
    blocked_at: list[float] = []
    results: list[tuple[float, dict[str, Any]]] = []
    noticed = threading.Event()

    @hf.task()
    async def block() -> None:
        blocked_at.append(time.monotonic())
        noticed.wait(PATIENCE)  # the fault under test

    def look() -> None:
        with contextlib.suppress(AssertionError):
            wait_until(lambda: blocked_at)
            wait_until(lambda: ask(port, "/live")[0] == 503)
            results.append((time.monotonic(), ask(port, "/live")[1]))
        noticed.set()

    async def run() -> None:
        async with working(hf, health_port=port):
            await until_says(port, "/live", 200)
            looking = asyncio.create_task(asyncio.to_thread(look))
            await block.aenqueue()
            await looking
            await until_says(port, "/live", 200)

    asyncio.run(run())
    when, what = results[0]
    assert what["checks"]["loop"].startswith("blocked for")
    assert when - blocked_at[0] < 2 * BEAT + SLACK


class Gate:
    """A socket that leads to the database while it is open."""

    def __init__(self, folder: str, target: str) -> None:
        self._folder, self._target = folder, target
        self._server: asyncio.Server | None = None
        self._is_open = False
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self._is_open = True
        self._server = await asyncio.start_unix_server(self._relay, f"{self._folder}/.s.PGSQL.5432")

    async def shut(self) -> None:
        assert self._server is not None
        self._is_open = False
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._folder}/.s.PGSQL.5432")

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._target)
        if not self._is_open:  # it was closed during a connect
            writer.transport.abort()
            back.transport.abort()
            return
        self._writers |= {writer, back}
        await asyncio.gather(pump(reader, back), pump(there, writer))
        self._writers -= {writer, back}


@pytest.fixture
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="hf") as made:  # short: it is part of a socket's name
        yield made


@pytest.fixture
def gate(dsn: str, folder: str) -> tuple[Gate, str]:
    info = psycopg.conninfo.conninfo_to_dict(dsn)
    made = Gate(folder, f"{info['host']}/.s.PGSQL.{info.get('port', 5432)}")
    return made, psycopg.conninfo.make_conninfo(dsn, host=folder, port=5432)


async def test_a_lost_database_is_reported_within_two_intervals_and_so_is_its_return(
    gate: tuple[Gate, str], port: int
) -> None:
    way, dsn = gate
    with Holdfast(dsn, connect_timeout=2) as hf:
        async with working(hf, health_port=port):
            health = await until_says(port, "/ready", 503)  # there is none yet
            assert health["checks"] == {"worker": "waits for its database"}
            assert (await aask(port, "/live"))[0] == 200, "a new process would have no database either"
            await way.open()
            await until_says(port, "/ready", 200)
            await way.shut()
            began = time.monotonic()
            health = await until_says(port, "/ready", 503)
            assert time.monotonic() - began < 2 * POLL_INTERVAL + SLACK
            assert health["checks"]["database"].startswith("no response for") and health["checks"]["loop"] == "ok"
            assert (await aask(port, "/live"))[0] == 200
            await way.open()
            await until_says(port, "/ready", 200)
    await way.shut()


async def test_a_claim_loop_that_stalls_is_not_live(hf: Holdfast, port: int) -> None:
    async with working(hf, health_port=port) as worker:
        await until_says(port, "/live", 200)
        let_go = asyncio.Event()
        run = worker.claimer.intake.session.run

        async def hang(call: Any) -> Any:
            await let_go.wait()
            return await run(call)

        worker.claimer.intake.session.run = hang  # type: ignore[method-assign]
        began = time.monotonic()
        health = await until_says(port, "/live", 503)
        assert time.monotonic() - began < 2 * POLL_INTERVAL + SLACK
        assert health["checks"]["claims"].startswith("stalled for")
        let_go.set()
        await until_says(port, "/live", 200)


def hold_renewals(monkeypatch: pytest.MonkeyPatch, let_go: threading.Event) -> None:
    """Let the next calls of the lease thread hang."""
    run = ThreadSession.run
    monkeypatch.setattr(ThreadSession, "run", lambda self, call: let_go.wait(PATIENCE) and run(self, call))


async def test_renewals_that_hang_make_it_unready_within_two_intervals(
    hf: Holdfast, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(hf, health_port=port, lease=2.0, renew=0.5):
        await until_says(port, "/ready", 200)
        let_go = threading.Event()
        hold_renewals(monkeypatch, let_go)
        began = time.monotonic()
        health = await until_says(port, "/ready", 503)
        assert health["checks"]["renewals"] == "failing"
        assert time.monotonic() - began < 2 * 0.5 + SLACK
        let_go.set()
        await until_says(port, "/ready", 200)


async def test_a_file_is_fresh_while_a_worker_is_ready_and_gone_within_two_intervals_when_it_is_not(
    hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "BEAT", beat := 0.3)
    file = tmp_path / f"ready-{os.getpid()}"
    async with working(hf, health_file=str(tmp_path / "ready-{pid}"), lease=2.0, renew=0.5):
        first = (await until(lambda: file.exists() and file.stat())).st_mtime
        await until(lambda: file.exists() and file.stat().st_mtime > first)
        let_go = threading.Event()
        hold_renewals(monkeypatch, let_go)
        began = time.monotonic()
        await until(lambda: not file.exists())
        assert time.monotonic() - began < 2 * 0.5 + beat + SLACK
        let_go.set()
        await until(file.exists)
        time.sleep(4 * beat)  # noqa: ASYNC251 - the fault under test
        assert not file.exists(), "a thread of its own sees that the loop is blocked"
        await until(file.exists)
    assert not file.exists()


def test_the_file_is_never_written_through_a_link(tmp_path: Path) -> None:
    name, there, missing = tmp_path / "ready", tmp_path / "there", tmp_path / "missing"
    there.write_text("theirs")
    os.utime(there, (1, 1))
    name.symlink_to(missing)  # before the start: it goes, and nothing is made where it led
    file = HealthFile(str(name))
    file.update(True)
    assert name.is_file() and not name.is_symlink()
    name.unlink()
    name.symlink_to(there)
    file.update(True)
    assert there.stat().st_mtime == 1
    file.update(False)
    assert not name.is_symlink() and not missing.exists() and there.read_text() == "theirs"


async def test_a_file_that_cannot_be_written_is_an_error_at_once(hf: Holdfast) -> None:
    from holdfast.worker import Worker

    with pytest.raises(ConfigurationError, match="health_file: /nowhere/x cannot be written: No such file"):
        await Worker(hf, health_file="/nowhere/x").run()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the fault under test
async def test_a_lease_thread_that_has_ended_is_not_live(
    hf: Holdfast, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(self: ThreadSession, call: Any) -> Any:
        raise SystemExit

    async with working(hf, health_port=port, renew=0.5):
        await until_says(port, "/live", 200)
        monkeypatch.setattr(ThreadSession, "run", ends)
        health = await until_says(port, "/live", 503)
        assert health["checks"]["lease_thread"] == "ended"


async def test_a_stopping_worker_is_live_and_not_ready(hf: Holdfast, port: int) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    @hf.task()
    async def slow() -> None:
        entered.set()
        await leave.wait()

    async with working(hf, health_port=port, grace=PATIENCE) as worker:
        await slow.aenqueue()
        await entered.wait()
        worker.stop()
        health = await until_says(port, "/ready", 503)
        assert health["checks"]["worker"] == "stopping"
        assert (await aask(port, "/live"))[0] == 200
        leave.set()


async def test_a_worker_without_its_broker_is_ready_unless_it_must_have_one(dsn: str, port: int) -> None:
    nowhere = {"amqp_enabled": True, "amqp_url": "amqp://guest:guest@127.0.0.1:1/", "health_port": port}
    with Holdfast(dsn, **nowhere) as hf:  # type: ignore[arg-type]
        async with working(hf):
            await until_says(port, "/ready", 200)
        async with working(hf, health_require_amqp=True):
            await until_says(port, "/live", 200)
            health = await until_says(port, "/ready", 503)
            assert await until(lambda: ask(port)[1].get("checks", {}).get("queue")) == "not connected", health


async def test_the_next_port_is_taken_where_one_is_in_use(hf: Holdfast, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        async with working(hf, health_port=port):

            async def anywhere() -> bool:
                return any([(await aask(number))[0] == 200 for number in range(port + 1, port + PORTS)])

            assert await until(anywhere)


async def test_ports_that_cannot_be_opened_are_an_error_at_once(hf: Holdfast) -> None:
    from holdfast.worker import Worker

    with pytest.raises(ConfigurationError, match="health_port: none of"):
        await Worker(hf, health_port=8000, health_host="192.0.2.1").run()


async def test_a_client_that_sends_nonsense_is_disconnected(hf: Holdfast, port: int) -> None:
    async with working(hf, health_port=port):
        await until_says(port, "/ready", 200)
        for noise in (b"\x00" * 5000, b"GET /live HTTP/1.1\r\n" + b"x" * 5000, b"\r\n\r\n", os.urandom(300) + b"\n\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(noise)
            writer.write_eof()
            with contextlib.suppress(OSError):
                async with asyncio.timeout(10):
                    assert b"200" not in await reader.read()
            writer.close()
        assert (await aask(port))[0] == 200


async def test_a_flood_of_those_who_say_nothing_takes_few_of_its_files(hf: Holdfast, port: int) -> None:
    async with working(hf, health_port=port):
        await until_says(port, "/ready", 200)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_ASKING + 20)]
        assert (await aask(port))[0] == 200
        async with asyncio.timeout(2):  # sooner than slow clients
            for reader, _ in silent[:20]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
        for _, writer in silent:
            writer.close()


def test_a_queue_cannot_be_required_where_there_is_none() -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_AMQP_ENABLED"):
        Settings(health_require_amqp=True)
