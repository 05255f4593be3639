"""`holdfast serve`: the service as a program."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from holdfast import Holdfast
from tests.conftest import wait_until
from tests.support.program import ran, started

APP = """
from holdfast import Holdfast
hf = Holdfast()

@hf.task(name="app.add")
async def add(a: int, b: int) -> int:
    return a + b

@hf.task(name="app.mail", queue="mail")
async def mail() -> None: ...

@hf.around_enqueue
def check(job):
    if b"-1" in job.payload:
        raise ValueError("no such thing at svc:hunter2@db")
    yield
"""
SITE = """
from fastapi import FastAPI
from holdfast import web
from serve_app import hf

site = FastAPI()
site.mount("/holdfast", web.app(hf))
"""
SECRET = "for cron and no one else"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "serve_app.py").write_text(APP)
    return tmp_path


def test_jobs_are_made_waited_for_and_run_by_ticks_alone(hf: Holdfast, dsn: str, folder: Path) -> None:
    token, _ = hf.tokens.create("web", tenant="acme", scopes=["jobs:read", "jobs:write"])
    secret = SECRET
    with started(
        dsn, "serve", "serve_app:hf", "--port", "0", "--tick", folder=folder, HOLDFAST_TICK_SECRETS=secret
    ) as program:
        url = wait_until(lambda: re.search(r"http://127\.0\.0\.1:\d+/v1", program.output))[0]
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
            assert http.post("/jobs", json={"task": "app.add", "args": {"a": 1, "b": -1}}).status_code == 500
            id_ = http.post("/jobs", json={"task": "app.add", "args": {"a": 1, "b": 2}}).json()["id"]
            assert http.post("/tick", headers={"x-internal-secret": secret}).json()["succeeded"] == 1
            with http.stream("GET", f"/jobs/{id_}/events") as events:
                assert '"result":3' in "".join(events.iter_text())
            assert http.get(f"/jobs/{id_}", params={"wait": 10}).json()["status"] == "succeeded"
            id_ = http.post("/jobs", json={"task": "app.add", "args": {"a": 1, "b": 2}}).json()["id"]
            with http.stream("GET", f"/jobs/{id_}/events") as events:  # a waiting request does not delay the shutdown
                assert '"queued"' in next(stream := events.iter_text())
                program.process.send_signal(signal.SIGTERM)
                assert program.ended() in (0, -signal.SIGTERM)
                assert "".join(stream) == ""
    assert token not in program.output and secret not in program.output
    assert "no such thing" in program.output and "hunter2" not in program.output
    assert re.search("queues not served here +queues=mail", program.output)


def test_ticks_serve_the_queues_of_the_options(hf: Holdfast, dsn: str, folder: Path) -> None:
    options = ["--port", "0", "--tick", "--all-queues"]
    with started(dsn, "serve", "serve_app:hf", *options, folder=folder, HOLDFAST_TICK_SECRETS=SECRET) as program:
        url = wait_until(lambda: re.search(r"http://127\.0\.0\.1:\d+/v1", program.output))[0]
        hf.task(name="app.mail", queue="mail")(lambda: None).enqueue()
        assert httpx.post(f"{url}/tick", headers={"x-internal-secret": SECRET}, timeout=60).json()["succeeded"] == 1
    assert "not served here" not in program.output


def test_a_mounted_service_shuts_down_while_a_request_waits(hf: Holdfast, dsn: str, folder: Path) -> None:
    (folder / "site_app.py").write_text(SITE)
    token, _ = hf.tokens.create("web", tenant="acme", scopes=["jobs:read", "jobs:write"])
    command = [sys.executable, "-m", "uvicorn", "site_app:site", "--port", "0"]
    with started(dsn, folder=folder, command=command) as program:
        url = wait_until(lambda: re.search(r"http://127\.0\.0\.1:\d+", program.output))[0]
        with httpx.Client(base_url=f"{url}/holdfast/v1", headers={"Authorization": f"Bearer {token}"}) as http:
            id_ = http.post("/jobs", json={"task": "app.add", "args": {"a": 1, "b": 2}}).json()["id"]
            with http.stream("GET", f"/jobs/{id_}/events", timeout=60) as events:
                assert '"queued"' in next(stream := events.iter_text())
                program.process.send_signal(signal.SIGTERM)
                assert program.ended(30) in (0, -signal.SIGTERM)
                assert "".join(stream) == ""


def test_a_port_that_is_taken_is_named(hf: Holdfast, dsn: str, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = ran(dsn, "serve", "serve_app:hf", "--port", port, folder=folder)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1 port {port}: " in done.stderr and "choose another with --port" in done.stderr


@pytest.mark.parametrize(
    ("role", "options", "why"),
    [
        ("holdfast_service", ["--tick"], "may not serve ticks: GRANT holdfast_worker TO <user>, or leave out --tick"),
        ("holdfast_enqueue", [], "may not serve: GRANT holdfast_service TO <user>"),
    ],
)
def test_missing_rights_are_reported_at_startup(
    hf: Holdfast, dsn: str, folder: Path, role: str, options: list[str], why: str
) -> None:
    least = f"{dsn} options='-c role={role}'"
    done = ran(least, "serve", "serve_app:hf", "--port", "0", *options, folder=folder, HOLDFAST_TICK_SECRETS=SECRET)
    assert done.returncode == 2 and why in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["serve_app:hf", "--tick"], "HOLDFAST_TICK_SECRETS"),
        (["serve_app:hf", "--schema", "not_there"], "run: holdfast migrate"),
        (["serve_app:nothing"], "has no 'nothing'"),
    ],
)
def test_what_cannot_be_served_is_reported_at_startup(
    hf: Holdfast, dsn: str, folder: Path, arguments: list[str], why: str
) -> None:
    done = ran(dsn, "serve", *arguments, "--port", "0", folder=folder)
    assert done.returncode == 2 and why in done.stderr


def test_without_the_extra_the_error_names_it() -> None:
    program = "import sys; sys.modules['starlette'] = None; from holdfast import web"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert "ConfigurationError: the service needs: pip install 'holdfast-jobs[web]'" in done.stderr
