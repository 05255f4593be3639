"""`holdfast serve`: the service as a program."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import httpx
import pytest
from conftest import wait_until
from program import ran, started

from holdfast import Holdfast

APP = """
from holdfast import Holdfast
hf = Holdfast()

@hf.task(name="app.add")
async def add(a: int, b: int) -> int:
    return a + b
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "serve_app.py").write_text(APP)
    return tmp_path


def test_jobs_are_made_waited_for_and_run_by_ticks_alone(hf: Holdfast, dsn: str, folder: Path) -> None:
    token, _ = hf.tokens.create("web", tenant="acme", scopes=["jobs:read", "jobs:write"])
    secret = "for cron and nobody else"
    with started(
        dsn, "serve", "serve_app:hf", "--port", "0", "--tick", folder=folder, HOLDFAST_TICK_SECRETS=secret
    ) as program:
        url = wait_until(lambda: re.search(r"http://127\.0\.0\.1:\d+/v1", program.said))[0]
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
            id_ = http.post("/jobs", json={"task": "app.add", "args": {"a": 1, "b": 2}}).json()["id"]
            assert http.post("/tick", headers={"x-internal-secret": secret}).json()["succeeded"] == 1
            with http.stream("GET", f"/jobs/{id_}/events") as events:
                assert '"result":3' in "".join(events.iter_text())
            assert http.get(f"/jobs/{id_}", params={"wait": 10}).json()["status"] == "succeeded"
        program.process.send_signal(signal.SIGTERM)
        assert program.ended() in (0, -signal.SIGTERM)
    assert token not in program.said and secret not in program.said


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["serve_app:hf", "--tick"], "HOLDFAST_TICK_SECRETS"),
        (["serve_app:hf", "--schema", "not_there"], "run: holdfast migrate"),
        (["serve_app:nothing"], "has no 'nothing'"),
    ],
)
def test_what_cannot_be_served_is_told_at_once(
    hf: Holdfast, dsn: str, folder: Path, arguments: list[str], why: str
) -> None:
    done = ran(dsn, "serve", *arguments, "--port", "0", folder=folder)
    assert done.returncode == 2 and why in done.stderr
