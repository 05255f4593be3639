"""Reports to the service manager: ready after the first claim, alive while claims go on, and stopping."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.settings import ServiceManager, service_manager
from holdfast.telemetry.systemd import Notifier, notifier
from tests.conftest import wait_until
from tests.support.manager import Manager, manager
from tests.support.program import as_json, holdfast, started
from tests.support.running import until, working

WATCHDOG = 2.0  # seconds
APP = """
import pathlib, time
from holdfast import Holdfast

hf = Holdfast()

@hf.task(name="app.block")
async def block(release: str) -> None:
    pathlib.Path("entered").touch()
    while not pathlib.Path(release).exists():
        time.sleep(0.01)
"""


@pytest.fixture(name="systemd")
def systemd_fixture() -> Iterator[Manager]:
    with manager() as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.mark.parametrize("options", [[], ["--processes", "2"]], ids=["one process", "supervised"])
def test_a_worker_is_ready_after_its_first_claim_and_then_alive_until_it_stops(
    hf: Holdfast, dsn: str, folder: Path, systemd: Manager, options: list[str]
) -> None:
    environment = systemd.environment(WATCHDOG)
    with started(dsn, "worker", "app:hf", *options, folder=folder, **environment) as program:
        systemd.until("READY=1")
        assert len(hf.workers.list()) == (2 if options else 1)
        for _ in range(3):
            systemd.until("WATCHDOG=1")
        program.process.send_signal(signal.SIGTERM)
        systemd.until("STOPPING=1")
        assert program.ended() == 0
        systemd.is_silent(0.01)
    assert systemd.reports.count("READY=1") == systemd.reports.count("STOPPING=1") == 1


def test_a_worker_without_its_database_is_not_ready(folder: Path, systemd: Manager) -> None:
    environment = systemd.environment(WATCHDOG)
    nowhere = "postgresql://127.0.0.1:1/nothing"
    with started(nowhere, "worker", "app:hf", folder=folder, **environment) as program:
        wait_until(lambda: "waiting for database" in program.output)
        assert systemd.is_silent(0.5)
    assert systemd.reports == []


def test_a_stuck_worker_is_not_reported_as_alive(dsn: str, folder: Path, systemd: Manager, hf: Holdfast) -> None:
    with started(dsn, "worker", "app:hf", folder=folder, **systemd.environment(WATCHDOG)):
        systemd.until("WATCHDOG=1")
        as_json(holdfast(dsn, "jobs", "enqueue", "app.block", '{"release": "release"}', "--json"))
        wait_until((folder / "entered").exists)
        assert systemd.is_silent(WATCHDOG), "so systemd restarts it"
        (folder / "release").touch()
        systemd.until("WATCHDOG=1")


async def test_a_worker_whose_claims_stall_is_not_reported_as_alive(hf: Holdfast, systemd: Manager) -> None:
    sending = Notifier(ServiceManager(str(systemd.address), 0.1))
    async with working(hf) as worker:
        worker.health.notifier = sending
        await asyncio.to_thread(systemd.until, "READY=1")
        await asyncio.to_thread(systemd.until, "WATCHDOG=1")
        let_go = asyncio.Event()
        run = worker.claimer.intake.session.run

        async def hang(call: Any) -> Any:
            await let_go.wait()
            return await run(call)

        worker.claimer.intake.session.run = hang  # type: ignore[method-assign]
        await until(lambda: worker.health.live()["claims"] != "ok")
        assert await asyncio.to_thread(systemd.is_silent, 0.5)
        let_go.set()
        await until(lambda: worker.health.live()["claims"] == "ok")
        await asyncio.to_thread(systemd.until, "WATCHDOG=1")
    systemd.until("STOPPING=1")


def test_the_service_is_ready_once_it_listens(hf: Holdfast, dsn: str, folder: Path, systemd: Manager) -> None:
    environment = systemd.environment(WATCHDOG)
    with started(dsn, "serve", "app:hf", "--port", "0", folder=folder, **environment) as program:
        systemd.until("READY=1")
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/v1", program.output)[1])  # type: ignore[index]
        socket.create_connection(("127.0.0.1", port)).close()
        for _ in range(3):
            systemd.until("WATCHDOG=1")
        program.process.send_signal(signal.SIGTERM)
        systemd.until("STOPPING=1")
        assert program.ended() in (0, -signal.SIGTERM)


def test_an_abstract_socket_is_reported_to() -> None:
    name = f"\0holdfast-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(name)
        receiving.settimeout(10)
        found = service_manager({"NOTIFY_SOCKET": name.replace("\0", "@")})
        assert found == ServiceManager(name, 0.0)
        Notifier(found).ready()
        assert receiving.recv(100) == b"READY=1"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"NOTIFY_SOCKET": "vsock:2:1"}, None),
        ({"NOTIFY_SOCKET": "/run/n"}, 0.0),
        ({"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "30000000"}, 30.0),
        ({"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "soon"}, 0.0),
    ],
)
def test_the_environment_names_the_service_manager(environment: dict[str, str], expected: float | None) -> None:
    found = service_manager(environment)
    assert (None if found is None else found.watchdog) == expected


def test_nothing_is_reported_without_a_service_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert notifier() is None
    lost = Notifier(ServiceManager("/nowhere/at/all", 1.0))
    lost.ready()
    lost.alive(lambda: True)
